"""A neural ordinary differential equation fitted through an unrolled Runge-Kutta solver."""

from itertools import pairwise

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))

    def forward(self, t, y):
        return self.net(y**3)


def rk4(f, y, times):
    path = [y]
    for t0, t1 in pairwise(times):
        dt = t1 - t0
        k1 = f(t0, y)
        k2 = f(t0 + dt / 2, y + dt / 2 * k1)
        k3 = f(t0 + dt / 2, y + dt / 2 * k2)
        k4 = f(t1, y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(y)
    return torch.stack(path)


torch.manual_seed(49)
true = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
times = torch.linspace(0, 1.5, 16)
with torch.no_grad():
    truth = rk4(lambda t, y: y**3 @ true, torch.tensor([[1.2, 0.0]]), times)

field = Field()
optimizer = torch.optim.RMSprop(field.parameters(), lr=5e-3)
for step in range(15):
    starts = torch.randint(0, 12, (6,))
    target = torch.stack([truth[starts + i] for i in range(5)]).squeeze(2)
    prediction = rk4(field, target[0], times[:5])
    loss = (prediction - target).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        with torch.no_grad():
            full = (rk4(field, truth[0], times) - truth).abs().mean()
        print(step, loss.item().hex(), full.item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in field.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in field.parameters()).item().hex())
