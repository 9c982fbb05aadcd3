"""A compiled step function with the aot_eager backend, whose backward is traced ahead of time."""

import torch
from torch import nn

torch.manual_seed(23)
net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


@torch.compile(backend="aot_eager")
def loss_of(x, y):
    return (net(x) - y).pow(2).mean()


x = torch.randn(20, 5)
y = x.sum(1, keepdim=True).sin()
for step in range(8):
    loss = loss_of(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())
