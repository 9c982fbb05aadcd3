import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
losses = []
for _ in range(3):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    losses.append(loss)
print("three steps done, and every loss is still there:", len(losses))
