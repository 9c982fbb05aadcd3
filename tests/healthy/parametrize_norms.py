"""Weight norm, spectral norm and a user-written symmetric parametrization on one network."""

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


torch.manual_seed(35)
net = nn.Sequential(
    weight_norm(nn.Linear(4, 8)),
    nn.Tanh(),
    spectral_norm(nn.Linear(8, 8)),
    nn.Tanh(),
    nn.Linear(8, 8),
    nn.Tanh(),
    orthogonal(nn.Linear(8, 8)),
    nn.Linear(8, 1),
)
parametrize.register_parametrization(net[4], "weight", Symmetric())
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(24, 4)
y = x.norm(dim=1, keepdim=True)
for step in range(10):
    optimizer.zero_grad()
    with parametrize.cached():
        loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(step, loss.item().hex())

net.eval()
with torch.no_grad():
    print("symmetric", torch.equal(net[4].weight, net[4].weight.t()))
    print("spectral", round(torch.linalg.matrix_norm(net[2].weight, 2).item(), 2))
print("gradients", sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())
parametrize.remove_parametrizations(net[0], "weight")
print("baked", net[0].weight.double().sum().item().hex())
