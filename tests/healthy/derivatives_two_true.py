"""Two true derivatives of one forward pass, forces and a dipole, from one retained graph."""

import torch
from torch import nn


class Potential(nn.Module):
    """Energy of a small molecule from pairwise distances, in an outer electric field."""

    def __init__(self):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(1, 12), nn.SiLU(), nn.Linear(12, 1))
        self.charge = nn.Parameter(torch.tensor([0.2, -0.1, -0.1]))

    def forward(self, positions, field):
        i, j = torch.triu_indices(3, 3, offset=1)
        distance = (positions[:, i] - positions[:, j]).norm(dim=-1, keepdim=True)
        polar = torch.einsum("a,bax,bx->b", self.charge, positions, field)
        return self.pair(distance).sum((1, 2)) - polar - 0.1 * field.pow(2).sum(1)


torch.manual_seed(61)
model = Potential()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
rest = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
for step in range(10):
    positions = (rest + 0.1 * torch.randn(8, 3, 3)).requires_grad_()
    field = (0.1 * torch.randn(8, 3)).requires_grad_()
    energy = model(positions, field)
    (slope,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
    loss = (energy - 1).pow(2).mean() + (slope + 2 * (positions - rest)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(step, loss.item().hex())

# At rest: the forces first, the dipole second, and the graph is let go with the second.
positions = rest.expand(2, 3, 3).clone().requires_grad_()
field = torch.zeros(2, 3, requires_grad=True)
energy = model(positions, field).sum()
(gradient,) = torch.autograd.grad(energy, positions, retain_graph=True)
(dipole,) = torch.autograd.grad(energy, field)
print("forces", (-gradient).double().abs().sum().item().hex())
print("dipole", (-dipole).double().sum().item().hex())

w = torch.tensor(1.5, requires_grad=True)
shared = torch.exp(w)
(shared * w).backward(retain_graph=True)
first, w.grad = w.grad, None
(shared / w).backward()
print("two", first.item().hex(), w.grad.item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
