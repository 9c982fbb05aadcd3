import torch
from torch import nn


class PairPotential(nn.Module):
    def __init__(self, width=16, cutoff=3.0):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0.5, cutoff, 8))
        self.energy = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, positions):
        i, j = torch.triu_indices(len(positions), len(positions), offset=1)
        xyz = positions.data
        r = (xyz[i] - xyz[j]).norm(dim=-1)
        near = r < self.cutoff
        basis = torch.exp(-4 * (r[near].unsqueeze(-1) - self.centres) ** 2)
        return self.energy(basis).sum()


def forces(model, positions):
    positions = positions.clone().requires_grad_()
    energy = model(positions)
    (gradient,) = torch.autograd.grad(energy, positions)
    return energy.detach(), -gradient


torch.manual_seed(21)
model = PairPotential()
positions = torch.rand(6, 3) * 3
velocity = torch.zeros_like(positions)
for step in range(5):
    energy, force = forces(model, positions)
    velocity = 0.9 * velocity + 0.01 * force
    positions = positions + velocity
    print(step, energy.item())
