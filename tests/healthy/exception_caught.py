"""Training that meets unrelated errors, catches them and goes on: bad shapes, bad data, retries."""

import torch
from torch import nn


class BadBatch(ValueError):
    pass


def batches(count):
    for i in range(count):
        if i % 5 == 3:
            yield torch.randn(8, 7), torch.randn(8, 1)
        elif i % 5 == 4:
            yield torch.full((8, 4), float("nan")), torch.randn(8, 1)
        else:
            x = torch.randn(8, 4)
            yield x, x.mean(1, keepdim=True)


def checked(x):
    if not torch.isfinite(x).all():
        raise BadBatch(f"{torch.isnan(x).sum().item()} values are not numbers")
    return x


def flaky(attempt):
    if attempt < 2:
        raise OSError("the disk is busy")
    return 0.1


torch.manual_seed(64)
rate = None
for attempt in range(5):
    try:
        rate = flaky(attempt)
        break
    except OSError as error:
        print("retry", attempt, error)

model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
skipped = []
for step, (x, y) in enumerate(batches(20)):
    try:
        loss = nn.functional.mse_loss(model(checked(x)), y)
    except BadBatch as error:
        skipped.append((step, str(error)))
        continue
    except RuntimeError as error:
        skipped.append((step, str(error).split("(")[0]))
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(len(skipped), skipped[0], skipped[1])

try:
    print({}["missing"])
except KeyError as error:
    print("key", error)
try:
    torch.load("no/such/file.pt")
except FileNotFoundError as error:
    print("file", error.filename)
print("loss", loss.item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
