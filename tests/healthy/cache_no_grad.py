"""Nested modules that cache encodings and prototypes computed under no_grad between steps."""

import torch
import torch.nn.functional as F
from torch import nn


class MemoryBank(nn.Module):
    """Keeps the latest encoding of each sample as a buffer."""

    def __init__(self, size, dim):
        super().__init__()
        self.register_buffer("bank", torch.zeros(size, dim))

    @torch.no_grad()
    def update(self, index, encoding):
        self.bank[index] = 0.5 * self.bank[index] + 0.5 * encoding

    def forward(self, query):
        return query @ F.normalize(self.bank, dim=1, eps=1e-6).t()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self._mask_cache = {}

    def window(self, n):
        if n not in self._mask_cache:
            self._mask_cache[n] = torch.hann_window(n, periodic=False) + 0.1
        return self._mask_cache[n]

    def forward(self, x):
        return F.normalize(self.net(x * self.window(x.size(1))), dim=1)


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.encoder, self.memory = Encoder(), MemoryBank(size, 8)
        self.temperature = nn.Parameter(torch.tensor(0.0))
        self.last = None

    def forward(self, x, index):
        z = self.encoder(x)
        logits = self.memory(z) * self.temperature.exp()
        self.memory.update(index, z)
        self.last = z.detach()
        return logits


torch.manual_seed(58)
data = torch.randn(24, 6)
model = Model(24)
with torch.no_grad():
    model.memory.update(torch.arange(24), model.encoder(data))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(12):
    index = torch.randperm(24)[:8]
    # The bank is written after it was read, so the scores use a copy of its rows.
    loss = F.cross_entropy(model(data[index] + 0.1 * torch.randn(8, 6), index), index)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(step, loss.item().hex(), model.last.double().sum().item().hex())
print("bank", model.memory.bank.double().sum().item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
