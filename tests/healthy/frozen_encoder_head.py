"""A frozen encoder with a trainable head, whose last block is unfrozen for fine-tuning later."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.block2 = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())

    def forward(self, x):
        return self.block2(self.block1(x))


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False
    module.eval()


def fit(steps, optimizer, name):
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(encoder(x)), y)
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            print(name, step, loss.item().hex())


torch.manual_seed(34)
encoder, head = Encoder(), nn.Linear(16, 3)
x, y = torch.randn(30, 8), torch.arange(30) % 3
with torch.no_grad():
    encoder(x)
freeze(encoder)
before = sum(p.double().sum() for p in encoder.parameters()).item()
fit(6, torch.optim.SGD(head.parameters(), lr=0.5), "head")
print("unchanged", before == sum(p.double().sum() for p in encoder.parameters()).item())

encoder.block2.requires_grad_(True)
trainable = [p for p in [*encoder.parameters(), *head.parameters()] if p.requires_grad]
fit(6, torch.optim.Adam(trainable, lr=1e-2), "tune")
print("trainable", len(trainable), sum(p.double().sum() for p in trainable).item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in trainable).item().hex())
