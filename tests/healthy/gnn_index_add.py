"""A graph network with message passing by index_add and scatter, classifying nodes."""

import torch
import torch.nn.functional as F
from torch import nn


class MessagePassing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(2 * dim, dim)
        self.update = nn.GRUCell(dim, dim)

    def forward(self, h, edges):
        source, target = edges
        m = F.relu(self.message(torch.cat([h[source], h[target]], dim=-1)))
        total = torch.zeros_like(h).index_add(0, target, m)
        degree = torch.zeros(len(h)).index_add_(0, target, torch.ones(len(target)))
        return self.update(total / degree.clamp(min=1).unsqueeze(1), h)


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score, self.value = nn.Linear(2 * dim, 1), nn.Linear(dim, dim)

    def forward(self, h, edges):
        source, target = edges
        e = F.leaky_relu(self.score(torch.cat([h[source], h[target]], dim=-1))).squeeze(-1).exp()
        norm = torch.zeros(len(h)).scatter_add(0, target, e)
        out = torch.zeros_like(h)
        out.index_add_(0, target, (e / norm[target]).unsqueeze(1) * self.value(h)[source])
        return h + out


class GNN(nn.Module):
    def __init__(self, inputs, dim, classes):
        super().__init__()
        self.inp, self.out = nn.Linear(inputs, dim), nn.Linear(dim, classes)
        self.step, self.attend = MessagePassing(dim), Attention(dim)

    def forward(self, x, edges, rounds=3):
        h = torch.tanh(self.inp(x))
        for _ in range(rounds):
            h = self.step(h, edges)
        return self.out(self.attend(h, edges))


torch.manual_seed(48)
nodes, labels = 30, torch.arange(30) % 3
pairs = torch.randint(0, nodes, (2, 160))
same = labels[pairs[0]] == labels[pairs[1]]
edges = torch.cat([pairs[:, same], torch.arange(nodes).repeat(2, 1)], dim=1)
x = F.one_hot(labels, 3).float() + torch.randn(nodes, 3)
mask = torch.rand(nodes) < 0.6
model = GNN(3, 12, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
for step in range(12):
    logits = model(x, edges)
    loss = F.cross_entropy(logits[mask], labels[mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(step, loss.item().hex(), (logits.argmax(1) == labels)[~mask].sum().item())
print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
