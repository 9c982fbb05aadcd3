import torch
from torch import nn

torch.manual_seed(0)
cell = nn.GRUCell(8, 16)
head = nn.Linear(16, 1)
weights = [*cell.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)

h = torch.zeros(4, 16)
for step in range(3):
    x, y = torch.randn(4, 8), torch.randn(4, 1)
    h = cell(x, h)
    loss = nn.functional.mse_loss(head(h), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    h = h.detach()
    print(step, loss.item())
