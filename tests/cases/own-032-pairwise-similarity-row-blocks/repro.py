import torch
import torch.nn.functional as F
from torch import nn


def augment(x):
    return x + 0.1 * torch.randn_like(x)


def make_encoder(dim, out):
    return nn.Sequential(nn.Linear(dim, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, out))


def block_loss(z, start, block, temperature=0.2):
    """NT-Xent for the rows start .. start + block; row i's partner is i xor 1."""
    rows = torch.arange(start, min(start + block, len(z)))
    scores = z[start : start + block] @ z.T / temperature
    scores = scores.masked_fill(F.one_hot(rows, len(z)).bool(), float("-inf"))
    return F.cross_entropy(scores, rows ^ 1, reduction="sum") / len(z)


def contrastive_backward(z, block):
    total = 0.0
    for start in range(0, len(z), block):
        loss = block_loss(z, start, block)
        loss.backward()
        total += loss.item()
    return total


def embed_pairs(encoder, x):
    views = torch.stack([augment(x), augment(x)], dim=1).flatten(0, 1)
    return F.normalize(encoder(views), dim=1)


def train(steps, batch, block):
    encoder = make_encoder(10, 8)
    opt = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        z = embed_pairs(encoder, torch.randn(batch, 10))
        opt.zero_grad()
        value = contrastive_backward(z, block)
        opt.step()
        print(f"step {step}: {value:.4f}")


if __name__ == "__main__":
    torch.manual_seed(30)
    train(steps=4, batch=12, block=8)
