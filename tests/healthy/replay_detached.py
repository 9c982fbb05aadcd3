"""Continual learning with a reservoir replay buffer of detached features and logits."""

import random

import torch
import torch.nn.functional as F
from torch import nn


class Reservoir:
    def __init__(self, capacity):
        self.capacity, self.seen, self.items = capacity, 0, []

    def add(self, x, logits, y):
        for item in zip(x.detach(), logits.detach(), y, strict=True):
            self.seen += 1
            if len(self.items) < self.capacity:
                self.items.append(item)
            elif (slot := random.randrange(self.seen)) < self.capacity:
                self.items[slot] = item

    def sample(self, n):
        x, logits, y = zip(*random.sample(self.items, n), strict=True)
        return torch.stack(x), torch.stack(logits), torch.stack(y)


def task(number):
    centres = torch.randn(2, 5, generator=torch.Generator().manual_seed(number)) * 2
    for _ in range(8):
        y = torch.randint(0, 2, (10,))
        yield centres[y] + 0.5 * torch.randn(10, 5), y + 2 * number


random.seed(59)
torch.manual_seed(59)
model = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
buffer = Reservoir(40)
for number in range(3):
    for x, y in task(number):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        if len(buffer.items) >= 10:
            old_x, old_logits, _ = buffer.sample(10)
            loss = loss + 0.3 * F.mse_loss(model(old_x), old_logits)
            old_x, _, old_y = buffer.sample(10)
            loss = loss + 0.5 * F.cross_entropy(model(old_x), old_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        buffer.add(x, logits, y)
    print(number, loss.item().hex(), len(buffer.items))
print("buffer", sum(item[1].double().sum() for item in buffer.items).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
