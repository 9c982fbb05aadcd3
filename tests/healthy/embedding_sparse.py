"""Embedding bags with sparse gradients, SparseAdam for them and Adam for the dense head."""

import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, items=200, dim=8):
        super().__init__()
        self.bag = nn.EmbeddingBag(items, dim, mode="sum", sparse=True)
        self.target = nn.Embedding(items, dim, sparse=True)
        self.head = nn.Sequential(nn.Linear(2 * dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, flat, offsets, candidate):
        pair = torch.cat([self.bag(flat, offsets), self.target(candidate)], dim=1)
        return self.head(pair).squeeze(1)


torch.manual_seed(57)
model = Recommender()
sparse = torch.optim.SparseAdam([*model.bag.parameters(), *model.target.parameters()], lr=1e-2)
dense = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for step in range(12):
    lengths = torch.randint(1, 6, (16,))
    flat = torch.randint(0, 200, (int(lengths.sum()),))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    candidate = torch.randint(0, 200, (16,))
    clicked = (candidate % 2 == flat[offsets] % 2).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(flat, offsets, candidate), clicked)
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
    if step % 4 == 3:
        grad = model.bag.weight.grad.coalesce()
        print(step, loss.item().hex(), grad.layout, grad.values().double().sum().item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
