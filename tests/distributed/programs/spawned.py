"""Two spawned ranks that carry a hidden state over."""

import torch
import torch.multiprocessing as mp


def worker(rank, steps):
    torch.manual_seed(rank)
    cell = torch.nn.GRUCell(3, 5)
    hidden = torch.zeros(2, 5)
    for _ in range(steps):
        hidden = cell(torch.randn(2, 3), hidden)
        hidden.square().sum().backward()


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
