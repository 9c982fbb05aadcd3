import torch
from torch import nn


class NodeMemory(nn.Module):
    """One vector a node, advanced by the events the node takes part in."""

    def __init__(self, n_nodes, dim, event_dim):
        super().__init__()
        self.register_buffer("table", torch.zeros(n_nodes, dim))
        self.update = nn.GRUCell(2 * dim + event_dim, dim)

    def read(self, nodes):
        return self.table[nodes]

    def write(self, src, dst, event):
        message = torch.cat([self.read(src), self.read(dst), event], dim=1)
        self.table[src] = self.update(message, self.read(src))
