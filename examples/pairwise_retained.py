"""Blocks of a pairwise matrix behind a real network, each with a backward and a step of its own.

Without retain_graph the second block fails with `Trying to backward through the graph a second
time`. With it, as here, the optimizer's step after the first block has written new weights over
those that the second block's backward needs: torch speaks of a [3000, 512] tensor, a shape that no
parameter has. It is the weight of the second layer, [512, 3000], which was saved transposed.
"""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(64, 3000), nn.ReLU(), nn.Linear(3000, 512))
optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-3)

codes = encoder(torch.randn(8, 64))
columns = codes.repeat(8, 1, 1)
matrix = torch.cat([columns.permute(1, 0, 2), columns], dim=2)

blocks = [matrix[:4, :4], matrix[:4, 4:], matrix[4:, :4], matrix[4:, 4:]]

for block in blocks:
    loss = (block[..., :512] * block[..., 512:]).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    print(tuple(block.shape), loss.item())
