"""Every generator gives the numbers that it gives alone, before, within and after a failure."""

import random

import numpy
import torch
from torch import nn

print(torch.initial_seed() != 0)
random.seed(0)
numpy.random.seed(0)
torch.manual_seed(0)


def show(name):
    print(name, random.random().hex(), float(numpy.random.rand()).hex(), torch.rand(1).item().hex(),
          torch.get_rng_state().sum().item())


show("start")
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.RReLU(), nn.Linear(8, 2))
out = nn.functional.gumbel_softmax(model(torch.randn(3, 4)))
out.sum().backward()
show("trained")
torch.multinomial(torch.ones(5), 3), torch.randperm(7), torch.bernoulli(torch.full((3,), 0.5))
torch.distributions.Normal(0.0, 1.0).rsample((2,))
show("drawn")
generator = torch.Generator().manual_seed(3)
print(torch.randn(2, generator=generator).tolist(), generator.initial_seed())
order = [b.tolist() for b in torch.utils.data.DataLoader(range(9), batch_size=4, shuffle=True)]
print(order)
show("loaded")
try:
    y = torch.randn(3, requires_grad=True).exp()
    torch.nn.functional.linear(y, torch.ones(9, 9))
except RuntimeError:
    pass
show("failed")
with torch.random.fork_rng():
    torch.manual_seed(9)
    print(torch.rand(2).tolist())
show("end")
