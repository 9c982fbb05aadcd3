from functools import cached_property

import torch
from torch import nn


class FourierCurve(nn.Module):
    """A sum of waves whose frequencies, phases and amplitudes are fitted."""

    def __init__(self, grid, n_waves):
        super().__init__()
        self.register_buffer("grid", grid)
        self.freqs = nn.Parameter(torch.linspace(1.0, 3.0, n_waves))
        self.phase = nn.Parameter(torch.zeros(n_waves))
        self.amplitude = nn.Parameter(torch.full((n_waves,), 0.3))

    @cached_property
    def basis(self):
        return torch.cos(self.grid[:, None] * self.freqs + self.phase)

    def forward(self):
        return self.basis @ self.amplitude

    def roughness(self):
        return (self.freqs.square() * self.amplitude.square()).sum()


class Fit:
    def __init__(self, curve, observed, weight):
        self.curve, self.observed, self.weight = curve, observed, weight
        self.opt = torch.optim.LBFGS(curve.parameters(), lr=0.5, max_iter=6)
        self.evaluations = 0

    def objective(self):
        misfit = (self.curve() - self.observed).square().mean()
        return misfit + self.weight * self.curve.roughness()

    def closure(self):
        self.evaluations += 1
        self.opt.zero_grad()
        value = self.objective()
        value.backward()
        return value

    def run(self, steps):
        for step in range(steps):
            value = self.opt.step(self.closure)
            print(f"step {step}: {value.item():.5f} after {self.evaluations} evaluations")


def main():
    torch.manual_seed(18)
    grid = torch.linspace(0.0, 6.0, 50)
    observed = 0.8 * torch.cos(1.3 * grid + 0.4) + 0.02 * torch.randn(50)
    Fit(FourierCurve(grid, n_waves=3), observed, weight=1e-3).run(steps=3)


if __name__ == "__main__":
    main()
