"""All pairs of ten vectors as a 10x10x10 matrix, cut into four blocks back-propagated one by one.

Runs clean: no node between the vectors and the blocks saves a tensor, so nothing is missing when
the next block walks the same nodes. With --layer a linear layer stands before the cut; it saves its
input and weight, the first block's backward frees them, and the second block's backward fails.
"""

import sys

import torch

torch.manual_seed(0)
vector_list = [torch.randn(5, requires_grad=True) for _ in range(10)]

columns = torch.stack(vector_list).repeat(10, 1, 1)
rows = columns.permute(1, 0, 2)
matrix = torch.cat([rows, columns], dim=2)

if "--layer" in sys.argv:
    layer = torch.nn.Linear(10, 10)
    matrix = layer(matrix)

blocks = [matrix[:5, :5], matrix[:5, 5:], matrix[5:, :5], matrix[5:, 5:]]

for block in blocks:
    loss = block.sum()
    loss.backward()
    print(tuple(block.shape), loss.item())

print(vector_list[0].grad)
