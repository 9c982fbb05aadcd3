import torch
from torch import nn


class TwoTaskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Conv2d(3, 6, 3, padding=1)
        self.segment = nn.Conv2d(6, 4, 1)
        self.depth = nn.Conv2d(6, 1, 1)

    def forward(self, image, task):
        z = torch.relu(self.trunk(image))
        if task == "segment":
            return self.segment(z)
        return self.depth(z).squeeze(1)


def task_loss(model, task, image, target):
    out = model(image, task)
    if task == "segment":
        return nn.functional.cross_entropy(out, target)
    return (out - target).abs().mean()


def gradient_norm(loss, model):
    grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.sqrt(sum(g.square().sum() for g in grads))


torch.manual_seed(27)
model = TwoTaskNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    image = torch.rand(2, 3, 8, 8)
    seg = task_loss(model, "segment", image, torch.randint(0, 4, (2, 8, 8)))
    dep = task_loss(model, "depth", image, image.mean(1))
    n_seg, n_dep = gradient_norm(seg, model), gradient_norm(dep, model)
    opt.zero_grad()
    (seg + (n_seg / n_dep) * dep).backward()
    opt.step()
    print(step, seg.item(), dep.item())
