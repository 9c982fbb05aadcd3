from functools import partial

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class PositionBias(nn.Module):
    """A small network from relative distance to one bias a head."""

    def __init__(self, heads, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, heads))

    def forward(self, n):
        i = torch.arange(n).float()
        distance = (i[None] - i[:, None]).unsqueeze(-1) / n
        return self.net(distance).permute(2, 0, 1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def attend(self, x, bias):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        weights = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + bias
        return self.proj((weights.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))

    def forward(self, x, bias=None):
        x = x + self.attend(self.norm1(x), bias)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, n_in, dim=16, heads=2, depth=3, checkpointing=True):
        super().__init__()
        self.embed = nn.Linear(n_in, dim)
        self.bias = PositionBias(heads)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, 1)
        self.checkpointing = checkpointing

    def forward(self, x):
        x = self.embed(x)
        bias = self.bias(x.size(1))
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(partial(block, bias=bias), x, use_reentrant=True)
            else:
                x = block(x, bias=bias)
        return self.head(x.mean(1)).squeeze(-1)


def main():
    torch.manual_seed(11)
    model = Model(4)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(6, 8, 4)
    y = x[:, 0, 0] - x[:, -1, 0]
    with torch.no_grad():
        print("before:", nn.functional.mse_loss(model.eval()(x), y).item())
    model.train()
    for step in range(3):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
