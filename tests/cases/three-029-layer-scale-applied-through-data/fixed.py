import torch
from torch import nn


class ResidualMLP(nn.Module):
    def __init__(self, dim, start=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.body = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.scale = nn.Parameter(torch.full((dim,), start))

    def forward(self, x):
        return x + self.scale * self.body(self.norm(x))


class EnergyForecaster(nn.Module):
    def __init__(self, history, dim=12):
        super().__init__()
        self.lift = nn.Linear(history, dim)
        self.blocks = nn.ModuleList(ResidualMLP(dim) for _ in range(2))
        self.next_hour = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.lift(x)
        for block in self.blocks:
            x = block(x)
        return self.next_hour(x).squeeze(-1)


torch.manual_seed(29)
net = EnergyForecaster(history=8)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.0)
load = torch.sin(torch.arange(300) / 6.0) + 0.1 * torch.randn(300)
windows = load.unfold(0, 9, 1)
for step in range(10):
    batch = windows[torch.randint(0, len(windows), (32,))]
    loss = nn.functional.huber_loss(net(batch[:, :8]), batch[:, 8])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
print("scales", [round(b.scale.mean().item(), 4) for b in net.blocks])
