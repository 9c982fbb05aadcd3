"""Contrastive learning with a batch that is too large for one graph, exactly.

Every item is compared with all others of the batch. The graph is split at the codes: the matrix of
similarities is made and back-propagated a block of rows at a time, and one backward goes on through
the encoder. The encoder runs a chunk at a time under a checkpoint, so that of it, too, only one
chunk's graph is in memory at once.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from onegraph.lifetime import blocks, split_at

BATCH, CHUNK, ROWS, STEPS, TEMPERATURE = 1024, 128, 256, 20, 0.1


class Encoder(nn.Module):
    def __init__(self, n_in=16, width=64, n_out=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, n_out))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=-1)


def encode(encoder, items):
    """The codes of a whole batch, with one chunk's graph in memory."""
    chunks = [checkpoint(encoder, chunk, use_reentrant=False) for chunk in items.split(CHUNK)]
    return torch.cat(chunks)


def two_views():
    """Each item twice: what it has in common with itself is in the first half of its numbers."""
    common = torch.randn(BATCH, 8)
    return [torch.cat([common, torch.randn(BATCH, 8)], dim=1) for _ in range(2)]


torch.manual_seed(0)
encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters(), lr=5e-3)
partners = torch.arange(BATCH)

for step in range(STEPS + 1):
    views = two_views()
    total = 0.0
    optimizer.zero_grad()
    with split_at([encode(encoder, view) for view in views]) as (ours, theirs):
        for block in blocks(ours, ROWS):
            similarity = block.values @ theirs.t() / TEMPERATURE
            wanted = partners[block.index[0]]
            loss = F.cross_entropy(similarity, wanted, reduction="sum") / BATCH
            loss.backward()
            total += loss.item()
    optimizer.step()
    if step % 5 == 0:
        print(f"step {step:2}  loss {total:.4f}")
