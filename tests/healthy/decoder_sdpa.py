"""A GPT-like decoder on scaled_dot_product_attention, with cached greedy generation."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, past=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.proj(y.transpose(1, 2).reshape(b, t, d)), (k, v)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, past=None):
        y, present = self.attn(self.ln1(x), past)
        x = x + y
        return x + self.mlp(self.ln2(x)), present


class GPT(nn.Module):
    def __init__(self, vocab=11, dim=24, heads=3, depth=2, context=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, past=None):
        start = 0 if past is None else past[0][0].size(2)
        x = self.tok(ids) + self.pos(torch.arange(start, start + ids.size(1)))
        presents = []
        for i, block in enumerate(self.blocks):
            x, present = block(x, None if past is None else past[i])
            presents.append(present)
        return self.head(self.ln(x)), presents


torch.manual_seed(6)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
for step in range(25):
    ids = (torch.randint(0, 11, (8, 1)) + torch.arange(17) * 2) % 11
    logits, _ = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 11), ids[:, 1:].reshape(-1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 8 == 0:
        print(step, loss.item().hex())

with torch.no_grad():
    ids, (logits, past) = torch.tensor([[3]]), model(torch.tensor([[3]]))
    for _ in range(8):
        token = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, token], dim=1)
        logits, past = model(token, past)
print(ids.tolist(), sum(p.double().sum() for p in model.parameters()).item().hex())
