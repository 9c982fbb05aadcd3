import torch
from torch import nn


def negative_cosine(online, target):
    online = online.detach()
    target = target.detach()
    return -nn.functional.cosine_similarity(online, target, dim=-1).mean()


class SimSiam(nn.Module):
    def __init__(self, d_in=20, d=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(d_in, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, d))
        self.predictor = nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, d))

    def forward(self, view1, view2):
        z1, z2 = self.backbone(view1), self.backbone(view2)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2


def jitter(x):
    return x * (1 + 0.1 * torch.randn_like(x)) + 0.05 * torch.randn_like(x)


def pretrain(steps):
    model = SimSiam()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        galaxies = torch.rand(24, 20)
        loss = model(jitter(galaxies), jitter(galaxies))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


torch.manual_seed(26)
for value in pretrain(3):
    print(f"{value:.4f}")
