"""Many metrics kept over a long run as plain numbers: running means, history, confusion matrix."""

from collections import defaultdict

import torch
from torch import nn


class AverageMeter:
    def __init__(self):
        self.sum, self.count, self.value = 0.0, 0, 0.0

    def update(self, value, n=1):
        self.value = value
        self.sum += value * n
        self.count += n

    @property
    def average(self):
        return self.sum / self.count


torch.manual_seed(60)
model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
meters, history = defaultdict(AverageMeter), []
confusion = torch.zeros(3, 3, dtype=torch.long)
smoothed = torch.tensor(1.0)

for step in range(150):
    y = torch.randint(0, 3, (12,))
    x = nn.functional.one_hot(y, 3) + 0.7 * torch.randn(12, 3)
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    predicted = logits.argmax(1)
    meters["loss"].update(loss.item(), len(y))
    meters["accuracy"].update((predicted == y).float().mean().item(), len(y))
    meters["entropy"].update(
        torch.distributions.Categorical(logits=logits.detach()).entropy().mean().item()
    )
    confusion.index_put_((y, predicted), torch.ones_like(y), accumulate=True)
    smoothed = 0.9 * smoothed + 0.1 * loss.detach()
    history.append({"step": step, "loss": loss.item(), "weight": model[0].weight.norm().item()})
    if step % 50 == 49:
        print(step, *(f"{k}={m.average.hex()}" for k, m in meters.items()), smoothed.item().hex())
print(confusion.tolist(), len(history), max(h["weight"] for h in history).hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
