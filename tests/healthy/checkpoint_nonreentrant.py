"""Activation checkpointing without reentrance: keyword arguments, nesting, and exact gradients."""

import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, *, gain=1.0):
        return x + gain * self.ff(self.norm(x))


class Net(nn.Module):
    def __init__(self, dim=10, depth=4, saving=True):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 3)
        self.saving = saving

    def pair(self, first, second, x):
        x = checkpoint(first, x, gain=0.5, use_reentrant=False)
        return second(x, gain=0.5)

    def forward(self, x):
        for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            if self.saving:
                x = checkpoint(self.pair, first, second, x, use_reentrant=False)
            else:
                x = second(first(x, gain=0.5), gain=0.5)
        return self.head(x)


torch.manual_seed(21)
saved = Net()
plain = copy.deepcopy(saved)
plain.saving = False
x, y = torch.randn(24, 10), torch.randint(0, 3, (24,))
for name, model in (("saved", saved), ("plain", plain)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            print(name, step, loss.item().hex())
    print(name, sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
    print(name, sum(p.double().sum() for p in model.parameters()).item().hex())
