import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)

for step in range(3):
    x = torch.randn(4, 8, requires_grad=True)
    score = critic(x).mean()
    (slope,) = torch.autograd.grad(score, x, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    optimizer.zero_grad()
    (score + 10 * penalty).backward()
    optimizer.step()
    print(step, score.item(), penalty.item())
