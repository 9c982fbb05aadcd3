"""A program that emits warnings from torch and of its own, and reports where each was placed."""

import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class OldStyle(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return F.softmax(self.fc(x))


def old_helper(x):
    warnings.warn("old_helper is deprecated, use F.normalize", DeprecationWarning, stacklevel=2)
    return x / x.norm()


def work():
    model = OldStyle()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scheduler.step()
    x = old_helper(torch.randn(6, 3))
    y = torch.tensor(torch.arange(6) % 4)
    rows, _columns = torch.meshgrid(torch.arange(2), torch.arange(3))
    for _ in range(4):
        loss = F.nll_loss(model(x).log(), y) + 0 * rows.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item(), sum(p.double().sum() for p in model.parameters()).item()


torch.manual_seed(63)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loss, total = work()
for w in caught:
    print(Path(w.filename).name, w.lineno, w.category.__name__, str(w.message).splitlines()[0][:60])
print(len(caught), loss.hex(), total.hex())

torch.manual_seed(63)
again = work()
print("same", again == (loss, total))
warnings.warn("finished with the old style", UserWarning, stacklevel=1)
