import torch
from torch import nn

torch.manual_seed(0)
mixing = nn.Parameter(torch.randn(5, 5))
layer = nn.Linear(3, 1)
optimizer = torch.optim.SGD([mixing, *layer.parameters()], lr=0.1)

for step in range(3):
    x, y = torch.randn(5, 3), torch.randn(5, 1)
    graph = mixing.softmax(dim=1)
    loss = nn.functional.mse_loss(layer(graph @ x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
