import math
import torch
from torch import nn


class AffineCoupling(nn.Module):
    def __init__(self, dim, flip):
        super().__init__()
        self.flip = flip
        self.conditioner = nn.Sequential(nn.Linear(dim // 2, 16), nn.Tanh(), nn.Linear(16, dim))

    def forward(self, x):
        a, b = x.tensor_split(2, dim=1)
        if self.flip:
            a, b = b, a
        log_s, shift = self.conditioner(a).chunk(2, dim=1)
        log_s = log_s.clamp(-2.0, 2.0)
        b = b * log_s.exp() + shift
        z = torch.cat([b, a] if self.flip else [a, b], dim=1)
        return z, log_s.sum(dim=1)


class Flow(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.steps = nn.ModuleList(AffineCoupling(dim, bool(k % 2)) for k in range(depth))

    def log_prob(self, x):
        total = 0.0
        for step in self.steps:
            x, log_det = step(x)
            total = total + log_det
        return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(dim=1)


torch.manual_seed(28)
flow = Flow(4, 3)
opt = torch.optim.Adam(flow.parameters(), lr=5e-3)
for epoch in range(3):
    prices = torch.randn(64, 4) @ torch.tril(torch.ones(4, 4))
    loss = -flow.log_prob(prices).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
