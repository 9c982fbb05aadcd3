"""Two ranks that carry a hidden state over."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    cell = DistributedDataParallel(torch.nn.GRUCell(3, 5))
    hidden = torch.zeros(2, 5)
    for step in range(3):
        hidden = cell(torch.randn(2, 3), hidden)
        loss = hidden.square().sum()
        loss.backward()
        print(f"rank {rank} step {step}\n", end="", flush=True)


if __name__ == "__main__":
    main()
