import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 7))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

total_loss = 0.0
for step in range(30):
    galaxies, shape = torch.randn(16, 12), torch.randint(0, 7, (16,))
    loss = nn.functional.cross_entropy(model(galaxies), shape)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total_loss += loss.item()
print(total_loss / 30)
