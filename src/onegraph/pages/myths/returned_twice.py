import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(4, 1)


def strengths(x):
    strength = layer(x)
    return strength, strength


for _ in range(3):
    read, write = strengths(torch.randn(8, 4))
    (read.exp() + write.sigmoid()).sum().backward()
print("three steps done")
