"""The repaired twin of `pairwise_blocks.py --layer`: pairs behind a layer, block by block.

An encoder makes vectors, and a layer scores every pair of them. The graph is split at the vectors:
each block's backward frees the block's own graph and ends at them, and one backward goes on from
there through the encoder. The n x n x 2d matrix of all pairs is never made. That the gradients are
those of the whole matrix is checked first.
"""

import torch
from torch import nn

from onegraph.lifetime import pairwise_blocks, split_at

ITEMS, BLOCK = 50, 16

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
items = torch.randn(ITEMS, 5)
# What is to be learned of a pair: how far apart its items are.
distances = torch.cdist(items, items)
encoder = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
layer = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
parameters = [*encoder.parameters(), *layer.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.02)


def loss_of(features, rows=slice(None), cols=slice(None)):
    """A part of the mean squared error over all pairs."""
    error = layer(features).squeeze(-1) - distances[rows, cols]
    return error.square().sum() / ITEMS**2


def blockwise():
    """Back-propagates all pairs a block at a time, and returns the loss."""
    total = 0.0
    with split_at(encoder(items)) as vectors:
        for block in pairwise_blocks(vectors, block=BLOCK):
            loss = loss_of(block.features, block.rows, block.cols)
            loss.backward()
            total += loss.item()
    return total


def whole():
    """The same with the whole matrix in memory."""
    vectors = encoder(items)
    rows = vectors.unsqueeze(1).expand(-1, ITEMS, -1)
    columns = vectors.unsqueeze(0).expand(ITEMS, -1, -1)
    loss_of(torch.cat([rows, columns], dim=-1)).backward()


def gradients(back_propagate):
    optimizer.zero_grad()
    back_propagate()
    return [parameter.grad for parameter in parameters]


pairs = zip(gradients(blockwise), gradients(whole), strict=True)
apart = max((one - other).abs().max().item() for one, other in pairs)
assert apart < 1e-12
print("gradients are those of the whole matrix")

for step in range(91):
    optimizer.zero_grad()
    loss = blockwise()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step:2}  loss {loss:.4f}")
