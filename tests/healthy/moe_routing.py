"""A mixture-of-experts layer with top-2 routing, index_add_ and a load-balancing loss."""

import torch
import torch.nn.functional as F
from torch import nn


class MoE(nn.Module):
    def __init__(self, dim, experts, k=2):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
            for _ in range(experts)
        )
        self.k = k

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weights, chosen = probs.topk(self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == i)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, slots].unsqueeze(1))
        load = F.one_hot(chosen, len(self.experts)).float().sum(1).mean(0)
        balance = len(self.experts) * (load * probs.mean(0)).sum()
        return out, balance, load


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(4, 8)
        self.moe = MoE(8, 4)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        h = self.inp(x)
        y, balance, load = self.moe(h)
        return self.out(h + y), balance, load


torch.manual_seed(32)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(15):
    x = torch.randn(32, 4)
    target = torch.stack([x[:, 0].abs(), x[:, 1] * x[:, 2]], dim=1)
    pred, balance, load = model(x)
    loss = F.mse_loss(pred, target) + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print(step, loss.item().hex(), balance.item().hex(), [round(v, 4) for v in load.tolist()])
print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
