import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(4, 4), nn.Linear(4, 1)
x = torch.randn(8, 4)
gradients = []
for copy in (False, True):
    h = first(x).tanh()
    h = h.clone() if copy else h
    first.zero_grad()
    second(h).sum().backward()
    gradients.append(first.weight.grad)
print("same gradient:", torch.equal(*gradients))
