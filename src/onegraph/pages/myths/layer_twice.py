import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(4, 4)
scale = nn.Parameter(torch.ones(4))
for _ in range(3):
    x = layer(layer(torch.randn(8, 4)) * scale).tanh() * scale
    x.sum().backward()
print("three steps done")
