import torch
from torch import nn
from torch.nn import functional as F

from tasks_fixed import Task


def make_tasks(width):
    return [
        Task("depth", nn.Linear(width, 1), lambda p, t: F.l1_loss(p.squeeze(1), t), 0.5),
        Task("surface", nn.Linear(width, 3), lambda p, t: (1 - F.cosine_similarity(p, t)).mean()),
        Task("class", nn.Linear(width, 5), F.cross_entropy, 2.0),
    ]


def fake_scene(batch, dim):
    x = torch.randn(batch, dim)
    targets = {
        "depth": x[:, 0].abs(),
        "surface": F.normalize(x[:, 1:4], dim=1),
        "class": x[:, 4:9].argmax(1),
    }
    return x, targets


class MultiTask:
    def __init__(self, dim, width):
        self.trunk = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.LayerNorm(width))
        self.tasks = make_tasks(width)
        params = [p for m in (self.trunk, *(t.head for t in self.tasks)) for p in m.parameters()]
        self.opt = torch.optim.AdamW(params, lr=2e-3)

    def step(self, x, targets):
        self.opt.zero_grad()
        features = self.trunk(x)
        log = {}
        for task in self.tasks:
            log[task.name] = task.contribute(features, targets[task.name])
        sum(log.values()).backward()
        self.opt.step()
        return {name: loss.item() for name, loss in log.items()}


if __name__ == "__main__":
    torch.manual_seed(22)
    learner = MultiTask(dim=10, width=16)
    for it in range(4):
        print(it, learner.step(*fake_scene(12, 10)))
