import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(8, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

for step in range(3):
    x, y = torch.randn(4, 8), torch.randn(4, 4)
    out = layer(x).sigmoid()
    loss = nn.functional.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    saturated = (out.detach() > 0.9).float().mean()
    print(step, loss.item(), saturated.item())
