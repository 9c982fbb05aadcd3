"""A vision transformer with a class token and stochastic depth on synthetic images."""

import torch
from torch import nn


def drop_path(x, rate, training):
    if not training or rate == 0.0:
        return x
    keep = torch.empty(x.size(0), 1, 1).bernoulli_(1 - rate)
    return x * keep.div_(1 - rate)


class Block(nn.Module):
    def __init__(self, dim, heads, rate):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.scale = nn.Parameter(torch.full((dim,), 0.1))
        self.rate = rate

    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attn(y, y, y, need_weights=False)
        x = x + drop_path(self.scale * y, self.rate, self.training)
        return x + drop_path(self.scale * self.mlp(self.norm2(x)), self.rate, self.training)


class ViT(nn.Module):
    def __init__(self, image=16, patch=4, dim=24, depth=3, classes=4):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.empty(1, (image // patch) ** 2 + 1, dim))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.blocks = nn.ModuleList(Block(dim, 3, 0.1 * i / depth) for i in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.size(0), -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def main():
    torch.manual_seed(8)
    model = ViT()
    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=10)
    images, labels = torch.randn(20, 3, 16, 16), torch.arange(20) % 4
    for step in range(10):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(step, loss.item().hex(), schedule.get_last_lr()[0].hex())
    print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
    print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())


main()
