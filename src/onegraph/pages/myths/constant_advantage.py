import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
advantage = torch.randn(8)
for _ in range(3):
    chosen = policy(torch.randn(8, 4)).log_softmax(dim=1)[:, 0]
    loss = -(chosen * advantage).mean()
    loss.backward()
print("three steps done with one advantage")
