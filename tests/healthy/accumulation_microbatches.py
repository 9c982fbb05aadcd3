"""Gradient accumulation over microbatches, compared with one large batch."""

import copy

import torch
from torch import nn

ACCUMULATE = 4


def train_accumulated(model, batches, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    optimizer.zero_grad()
    running = 0.0
    for i, (x, y) in enumerate(batches):
        loss = nn.functional.mse_loss(model(x), y) / ACCUMULATE
        loss.backward()
        running += loss.item()
        if (i + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
            print("accumulated", (i + 1) // ACCUMULATE, running.hex())
            running = 0.0


def train_large(model, batches, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for i in range(0, len(batches), ACCUMULATE):
        group = batches[i : i + ACCUMULATE]
        x, y = torch.cat([b[0] for b in group]), torch.cat([b[1] for b in group])
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print("large", i // ACCUMULATE + 1, loss.item().hex())


if __name__ == "__main__":
    torch.manual_seed(18)
    base = nn.Sequential(nn.Linear(6, 20), nn.SiLU(), nn.Linear(20, 2))
    weight = torch.randn(6, 2)
    inputs = [torch.randn(5, 6) for _ in range(16)]
    batches = [(x, x @ weight) for x in inputs]
    first, second = copy.deepcopy(base), copy.deepcopy(base)
    train_accumulated(first, batches, lr=0.02)
    train_large(second, batches, lr=0.02)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    print("close", all(torch.allclose(a, b, atol=1e-5) for a, b in pairs))
    print("parameters", sum(p.double().sum() for p in first.parameters()).item().hex())
