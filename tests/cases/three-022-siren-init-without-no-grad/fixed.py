import math
import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, fan_in, fan_out, omega=30.0, first=False):
        super().__init__()
        self.omega = omega
        self.linear = nn.Linear(fan_in, fan_out)
        bound = 1 / fan_in if first else math.sqrt(6 / fan_in) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


def siren(width, depth):
    layers = [Sine(2, width, first=True)]
    layers += [Sine(width, width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def pixel_grid(n):
    axis = torch.linspace(-1, 1, n)
    return torch.cartesian_prod(axis, axis)


torch.manual_seed(22)
xy = pixel_grid(10)
height = torch.exp(-3 * xy.square().sum(1, keepdim=True))
net = siren(24, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-4)
for it in range(8):
    loss = (net(xy) - height).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("fit error", loss.item())
