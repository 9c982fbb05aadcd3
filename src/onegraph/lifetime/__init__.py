"""Primitives that keep a graph short-lived: one forward pass builds it, one backward frees it.

They import torch alone, work on any nest of tensors, and each is exact: the gradients are those of
one backward of the sum of all losses.
"""

from onegraph.lifetime.blocks import Block, PairBlock, blocks, pairwise_blocks
from onegraph.lifetime.nest import HistoryError, assert_detached, detach
from onegraph.lifetime.split import TrunkChanged, split_at
from onegraph.lifetime.sums import backward_sum
from onegraph.lifetime.windows import Window, backward_windows, windows

__all__ = [
    "Block",
    "HistoryError",
    "PairBlock",
    "TrunkChanged",
    "Window",
    "assert_detached",
    "backward_sum",
    "backward_windows",
    "blocks",
    "detach",
    "pairwise_blocks",
    "split_at",
    "windows",
]
