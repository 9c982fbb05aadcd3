import torch
from torch import nn


@torch.compile(backend="aot_eager")
def both(user_tower, item_tower, user, item):
    return user_tower(user).tanh(), item_tower(item).tanh()


torch.manual_seed(0)
towers = nn.ModuleList([nn.Linear(6, 4), nn.Linear(9, 4)])
optimizer = torch.optim.SGD(towers.parameters(), lr=0.1)
for step in range(3):
    users, items = both(*towers, torch.randn(8, 6), torch.randn(8, 9))
    user_loss = (users.std(dim=0) - 1).square().mean()
    item_loss = (items.std(dim=0) - 1).square().mean()
    optimizer.zero_grad()
    (user_loss + item_loss).backward()
    optimizer.step()
    print(step, user_loss.item(), item_loss.item())
