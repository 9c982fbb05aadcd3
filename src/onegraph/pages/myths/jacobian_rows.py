import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
x = torch.randn(4, requires_grad=True)
y = model(x)
rows = []
for i in range(3):
    (row,) = torch.autograd.grad(y[i], x, retain_graph=i < 2)
    rows.append(row)
print("the Jacobian's shape:", tuple(torch.stack(rows).shape))
