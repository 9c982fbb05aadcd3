import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for place in ("before forward", "before backward", "after step", "nowhere"):
    for _ in range(3):
        if place == "before forward":
            optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        if place == "before backward":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if place == "after step":
            optimizer.zero_grad()
    print("zero_grad", place, "runs")
