import math

import torch
from torch import nn


def attend(q, k, v, keep=4, past={}):
    """Attention over this segment and the last few positions of the one before."""
    if past:
        k = torch.cat([past["k"], k], dim=1)
        v = torch.cat([past["v"], v], dim=1)
    past["k"], past["v"] = k[:, -keep:].detach(), v[:, -keep:].detach()
    scores = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.query, self.key = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.value, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        y = self.norm(x)
        k, v = self.key(y), self.value(y)
        return x + self.out(attend(self.query(y), k, v))


class SegmentModel(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.block = Block(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)))


def next_token_loss(model, segment):
    logits = model(segment[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), segment[:, 1:].flatten())


if __name__ == "__main__":
    torch.manual_seed(6)
    model = SegmentModel(vocab=20, dim=16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(0, 20, (2, 60))
    for n, segment in enumerate(text.split(12, dim=1)):
        opt.zero_grad()
        loss = next_token_loss(model, segment)
        loss.backward()
        opt.step()
        print(n, loss.item())
