"""Anomaly mode prints the stack of the forward call as it does alone."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))


class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


def step(x):
    y = model(x)
    z = torch.nn.functional.softplus(y)
    return torch.sqrt(Bad.apply(z) * 0).sum()


x = torch.zeros(2, 3)
torch.autograd.set_detect_anomaly(True)
for function in (step, lambda x: (model(x) - model(x)).pow(0.5).mul(0).sum()):
    try:
        function(x).backward()
    except RuntimeError as error:
        print(error)
h = model[0](x)
h2 = h.sigmoid()
h2.add_(1)
h2.sum().backward()
