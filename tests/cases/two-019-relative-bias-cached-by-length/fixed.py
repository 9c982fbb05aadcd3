import math

import torch
from torch import nn


class RelativeAttention(nn.Module):
    def __init__(self, dim, heads, max_distance=8):
        super().__init__()
        self.heads, self.max_distance = heads, max_distance
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Embedding(2 * max_distance + 1, heads)
        self.bias_cache = {}

    def bias(self, n):
        if n not in self.bias_cache:
            i = torch.arange(n)
            distance = (i[None] - i[:, None]).clamp(-self.max_distance, self.max_distance)
            self.bias_cache[n] = distance + self.max_distance
        return self.table(self.bias_cache[n]).permute(2, 0, 1)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.size(-1))
        attn = (scores + self.bias(n)).softmax(-1)
        return self.out(torch.einsum("bhij,bhjd->bihd", attn, v).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(dim), RelativeAttention(dim, 2)

    def forward(self, x):
        return x + self.attn(self.norm(x))


class Tagger(nn.Module):
    def __init__(self, vocab, dim, depth, tags):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, tags)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def step(model, opt, ids):
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), (ids % 4).flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


torch.manual_seed(6)
model = Tagger(30, 16, 2, 4)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for it, length in enumerate([5, 9, 7, 6, 9, 5, 8]):
    print(it, length, step(model, opt, torch.randint(0, 30, (3, length))))
