import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
one = model(torch.randn(8, 4)).sum()
other = model(torch.randn(8, 4)).sum()
one.backward()
other.backward()
print("both done")
