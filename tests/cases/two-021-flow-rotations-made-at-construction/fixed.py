import math

import torch
from torch import nn


class RotationFlow(nn.Module):
    """x -> (x R) * exp(s) + b, with R orthogonal."""

    def __init__(self, dim):
        super().__init__()
        self.skew = nn.Parameter(0.1 * torch.randn(dim, dim))
        self.log_s = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    @property
    def rotation(self):
        return torch.matrix_exp(self.skew - self.skew.T)

    def forward(self, x):
        y = x @ self.rotation * self.log_s.exp() + self.shift
        return y, self.log_s.sum().expand(len(x))

    def inverse(self, y):
        return (y - self.shift) * (-self.log_s).exp() @ self.rotation.T


class Coupling(nn.Module):
    def __init__(self, dim, width, flip):
        super().__init__()
        self.half, self.flip = dim // 2, flip
        self.net = nn.Sequential(nn.Linear(self.half, width), nn.Tanh(), nn.Linear(width, dim))

    def forward(self, x):
        a, b = x.split(self.half, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        y = torch.cat([b, a] if self.flip else [a, b], dim=1)
        return y, s.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=4, depth=3):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [RotationFlow(dim), Coupling(dim, 16, flip=i % 2 == 1)]
        self.layers = nn.ModuleList(layers)

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        base = -0.5 * (x.square() + math.log(2 * math.pi)).sum(1)
        return base + total


if __name__ == "__main__":
    torch.manual_seed(8)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    mix = torch.randn(4, 4)
    for step in range(5):
        x = torch.randn(64, 4) @ mix
        nll = -flow.log_prob(x).mean()
        opt.zero_grad()
        nll.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        opt.step()
        print(step, nll.item())
