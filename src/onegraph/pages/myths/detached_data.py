import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.randn(8, 4)
gradients = []
for given in (x, x.detach()):
    model.zero_grad()
    model(given).square().mean().backward()
    gradients.append(model[0].weight.grad)
print("same gradient:", torch.equal(*gradients))
