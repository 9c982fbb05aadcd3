import torch
from torch import nn


def evaluate(model, x, y):
    with torch.no_grad():
        return nn.functional.mse_loss(model(x), y).item()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(11, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
wines, quality = torch.randn(64, 11), torch.randn(64, 1)
for epoch in range(3):
    loss = nn.functional.mse_loss(model(wines[:48]), quality[:48])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item(), evaluate(model, wines[48:], quality[48:]))
