"""Curve fitting with L-BFGS, whose closure evaluates the loss several times in one step."""

import torch
from torch import nn

torch.manual_seed(17)
torch.set_default_dtype(torch.float64)
x = torch.linspace(-2, 2, 60).unsqueeze(1)
y = torch.sin(3 * x) * torch.exp(-x.pow(2) / 4) + 0.01 * torch.randn_like(x)

net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(
    net.parameters(), lr=0.8, max_iter=10, history_size=8, line_search_fn="strong_wolfe"
)
evaluations = 0


def closure():
    global evaluations
    evaluations += 1
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for step in range(6):
    loss = optimizer.step(closure)
    print(step, evaluations, loss.item().hex())

with torch.no_grad():
    print("final", nn.functional.mse_loss(net(x), y).item().hex())
print("gradients", sum(p.grad.abs().sum() for p in net.parameters()).item().hex())
print("parameters", sum(p.sum() for p in net.parameters()).item().hex())
