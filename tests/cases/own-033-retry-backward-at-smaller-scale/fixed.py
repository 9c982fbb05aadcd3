import logging

import torch
from torch import nn

log = logging.getLogger("guard")


class ScaledStep:
    """Multiply the loss before backward; try a smaller scale when that is too much."""

    def __init__(self, params, optimizer, scale=1024.0, limit=200.0):
        self.params = list(params)
        self.optimizer = optimizer
        self.scale, self.limit = scale, limit

    def norm(self):
        return torch.stack([p.grad.norm() for p in self.params]).norm().item()

    def attempt(self, loss):
        self.optimizer.zero_grad()
        scaled = loss() * self.scale
        scaled.backward()
        return self.norm() <= self.limit

    def __call__(self, loss):
        while not self.attempt(loss):
            self.scale /= 2.0
            log.warning("gradient too large, scale is now %g", self.scale)
        for p in self.params:
            p.grad /= self.scale
        self.optimizer.step()


class Regressor(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, 24), nn.Softplus(), nn.Linear(24, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def poisson_loss(model, x, counts):
    return nn.functional.poisson_nll_loss(model(x), counts)


def train(steps=4):
    torch.manual_seed(31)
    model = Regressor(6)
    step = ScaledStep(model.parameters(), torch.optim.SGD(model.parameters(), lr=1e-2))
    for it in range(steps):
        x = torch.randn(20, 6)
        counts = torch.poisson(2.0 * x[:, 0].exp())
        step(lambda: poisson_loss(model, x, counts))
        print(it, step.scale)


if __name__ == "__main__":
    train()
