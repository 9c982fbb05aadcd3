import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
shops, sold = torch.randn(64, 6), torch.randint(0, 9, (64, 1)).float()

for step in range(8):
    parcels = model(shops)
    loss = nn.functional.mse_loss(parcels, sold)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
