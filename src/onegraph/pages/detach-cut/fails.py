import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

worst = 0.0
for step in range(3):
    past, future = torch.randn(4, 24), torch.randn(4, 6)
    forecast = model(past).detach()
    worst = max(worst, (forecast - future).abs().max().item())
    loss = nn.functional.mse_loss(forecast, future)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), worst)
