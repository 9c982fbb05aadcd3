import torch
from torch import nn

torch.manual_seed(0)
ratings = torch.rand(20, 12)
users = nn.Parameter(torch.rand(20, 3))
items = nn.Parameter(torch.rand(3, 12))
optimizer = torch.optim.SGD([users, items], lr=5.0)

for step in range(3):
    loss = nn.functional.mse_loss(users @ items, ratings)
    optimizer.zero_grad()
    with torch.no_grad():
        users.clamp_(min=0)
        items.clamp_(min=0)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
