import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)

N_NODES, DIM = 14, 8
events = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (0, 5), (12, 13), (1, 9), (2, 12)]

memory = np.empty(N_NODES, dtype=object)
for i in range(N_NODES):
    memory[i] = torch.zeros(1, DIM)


class MemoryUpdater(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * dim + 1, dim), nn.ReLU())
        self.cell = nn.GRUCell(dim, dim)

    def forward(self, own, other, dt):
        msg = self.message(torch.cat([own, other, dt], dim=1))
        return self.cell(msg, own)


class LinkScorer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Bilinear(dim, dim, 1)

    def forward(self, a, b):
        return self.w(a, b)


updater, scorer = MemoryUpdater(DIM), LinkScorer(DIM)
params = list(updater.parameters()) + list(scorer.parameters())
opt = torch.optim.Adam(params, lr=0.01)
last_seen = {}

for t, (u, v) in enumerate(events):
    dt = torch.tensor([[float(t - last_seen.get(u, 0))]])
    m_u, m_v = memory[u], memory[v]
    new_u = updater(m_u, m_v, dt)
    new_v = updater(m_v, m_u, dt)
    negative = memory[(v + 3) % N_NODES].detach()
    score = torch.cat([scorer(new_u, new_v), scorer(new_u, negative)])
    loss = nn.functional.binary_cross_entropy_with_logits(score, torch.tensor([[1.0], [0.0]]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    memory[u], memory[v] = new_u.detach(), new_v.detach()
    last_seen[u] = last_seen[v] = t
    print(f"event {t}: {loss.item():.4f}")
