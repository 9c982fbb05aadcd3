import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
heads = nn.ModuleList(nn.Linear(16, 1) for _ in range(3))
weights = [*trunk.parameters(), *heads.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)
importance = torch.tensor([0.5, 0.3, 0.2])

for step in range(3):
    x, targets = torch.randn(4, 8), torch.randn(3, 4, 1)
    h = trunk(x)
    pairs = zip(heads, targets)
    losses = [(head(h) - y).square().mean() for head, y in pairs]
    loss = (importance * torch.tensor(losses)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
