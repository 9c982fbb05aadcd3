"""Contrastive learning: SimCLR, then MoCo with a momentum encoder and a key queue."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(47)
data = torch.randn(32, 8)


def encoder():
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 6))


def augment(x):
    return x * (torch.rand_like(x) > 0.1) + 0.1 * torch.randn_like(x)


def nt_xent(a, b, temperature=0.5):
    z = F.normalize(torch.cat([a, b]), dim=1)
    similarity = z @ z.t() / temperature
    similarity.fill_diagonal_(float("-inf"))
    targets = torch.arange(len(z)).roll(len(a))
    return F.cross_entropy(similarity, targets)


net = encoder()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for step in range(10):
    x = data[torch.randperm(32)[:16]]
    loss = nt_xent(net(augment(x)), net(augment(x)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print("simclr", step, loss.item().hex())

query, key = net, copy.deepcopy(net).requires_grad_(False)
queue, pointer = F.normalize(torch.randn(6, 48), dim=0), 0
for step in range(10):
    x = data[torch.randperm(32)[:16]]
    q = F.normalize(query(augment(x)), dim=1)
    with torch.no_grad():
        for pq, pk in zip(query.parameters(), key.parameters(), strict=True):
            pk.lerp_(pq, 0.05)
        k = F.normalize(key(augment(x)), dim=1)
    positive = (q * k).sum(1, keepdim=True)
    logits = torch.cat([positive, q @ queue.clone()], dim=1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue[:, pointer : pointer + 16] = k.t()
    pointer = (pointer + 16) % 48
    if step % 3 == 0:
        print("moco", step, loss.item().hex())
print("queue", queue.double().sum().item().hex())
for name, module in (("query", query), ("key", key)):
    print(name, sum(p.double().sum() for p in module.parameters()).item().hex())
