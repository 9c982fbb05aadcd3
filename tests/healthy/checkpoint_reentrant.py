"""Activation checkpointing with the reentrant implementation and preserved dropout masks."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Deep(nn.Module):
    def __init__(self, dim=12, depth=4):
        super().__init__()
        self.inp = nn.Linear(5, dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(dim, dim))
            for _ in range(depth)
        )
        self.tail = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim), nn.Tanh())
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + checkpoint(block, h, use_reentrant=True)
        h = checkpoint_sequential(self.tail, 2, h, use_reentrant=True)
        return self.out(h)


torch.manual_seed(20)
model = Deep()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
x = torch.randn(40, 5)
y = x.pow(2).sum(1, keepdim=True)
for step in range(10):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
