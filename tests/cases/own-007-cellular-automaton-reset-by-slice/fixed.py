import torch
from torch import nn


class Rule(nn.Module):
    """The local update: perceive the neighbourhood, then a small change a cell."""

    def __init__(self, channels, width):
        super().__init__()
        self.perceive = nn.Conv2d(channels, width, 3, padding=1)
        self.change = nn.Conv2d(width, channels, 1)

    def forward(self, cells):
        return 0.1 * self.change(torch.relu(self.perceive(cells)))


class World:
    def __init__(self, rule, channels=4, size=9):
        self.rule = rule
        self.cells = torch.zeros(1, channels, size, size)

    def reset(self):
        middle = self.cells.size(-1) // 2
        self.cells = torch.zeros_like(self.cells)
        self.cells[:, :, middle, middle] = 1.0

    def grow(self, steps):
        for _ in range(steps):
            self.cells = self.cells + self.rule(self.cells)
        return self.cells[:, 0]


def disc(size, radius):
    axis = torch.arange(size) - size // 2
    return ((axis[:, None] ** 2 + axis[None, :] ** 2) <= radius**2).float()


class GrowthTask:
    def __init__(self, world, target, lr):
        self.world, self.target = world, target
        self.opt = torch.optim.Adam(world.rule.parameters(), lr=lr)

    def loss(self, steps):
        self.world.reset()
        picture = self.world.grow(steps)
        return (picture - self.target).square().mean()

    def train(self, rollouts):
        for r in range(rollouts):
            loss = self.loss(steps=6)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            print(f"rollout {r}: {loss.item():.4f}")


torch.manual_seed(1)
GrowthTask(World(Rule(4, 12)), disc(9, 3), lr=1e-2).train(rollouts=5)
