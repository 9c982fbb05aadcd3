"""Two ranks with the primitives against one process on the joined batch; raises where they differ.

Each gradient is reduced across ranks once a step, however many backward calls a step has.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from onegraph.lifetime import blocks, detach, split_at, windows

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
reduced = []


def wrapped(module):
    parallel = DistributedDataParallel(module)

    def count(state, bucket):
        reduced.append(len(bucket.parameters()))
        return allreduce_hook(state, bucket)

    parallel.register_comm_hook(None, count)
    return parallel


def fresh():
    torch.manual_seed(7)
    modules = [nn.Linear(3, 5), nn.Linear(5, 1), nn.GRU(3, 5)]
    return [module.double() for module in modules]


def blockwise(encoder, head, x, sync):
    with split_at(encoder(x).tanh()) as leaf:
        for block in blocks(leaf, 2):
            with sync(head, block.last):
                (head(block.values).pow(2).sum() / len(x)).backward()


def windowed(cell, x, lengths, total, sync):
    state = torch.zeros(1, x.shape[1], 5, dtype=x.dtype)
    for window in windows(x, 3, lengths=lengths, total=total):
        with sync(cell, window):
            out, new = cell(window.data, state)
            window.weigh(out.pow(2).mean(-1)).backward()
        state = detach(window.freeze(new, state, batch=1))


def compare(modules, alone):
    for module, single in zip(modules, alone, strict=True):
        for ours, theirs in zip(module.parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)


torch.manual_seed(1)
batch = torch.randn(4 * ranks, 3, dtype=torch.float64)
sequence = torch.randn(7, 2 * ranks, 3, dtype=torch.float64)
lengths = torch.tensor([7, 2, 5, 6])

encoder, head, cell = modules = [wrapped(module) for module in fresh()]
mine = batch[rank * 4 : rank * 4 + 4]
blockwise(encoder, head, mine, lambda m, last: m.no_sync() if not last else torch.enable_grad())
my_lengths = lengths[rank * 2 : rank * 2 + 2]
my_sequence = sequence[:, rank * 2 : rank * 2 + 2]
share = lengths.sum().item() / ranks
windowed(cell, my_sequence, my_lengths, share, lambda m, window: window.sync(m))
once = sum(len(list(module.parameters())) for module in modules)
assert sum(reduced) == once, (reduced, once)

alone = fresh()
blockwise(alone[0], alone[1], batch, lambda m, last: torch.enable_grad())
windowed(alone[2], sequence, lengths, None, lambda m, window: torch.enable_grad())
compare(modules, alone)
print(f"rank {rank}: the same")
dist.destroy_process_group()
