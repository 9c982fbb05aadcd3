from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class RecentMean:
    def __init__(self, size=3):
        self.recent = deque(maxlen=size)

    @property
    def full(self):
        return len(self.recent) == self.recent.maxlen

    def __call__(self, loss):
        self.recent.append(loss)
        return torch.stack(tuple(self.recent)).mean()


class SimCLR(nn.Module):
    def __init__(self, n_in=12, dim=16, z=8, temperature=0.5):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, dim), nn.BatchNorm1d(dim), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, z))
        self.temperature = temperature

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)

    def info_nce(self, view1, view2):
        z = torch.cat([self(view1), self(view2)])
        sim = z @ z.T / self.temperature
        sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        n = len(view1)
        target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
        return F.cross_entropy(sim, target)


def views(batch):
    def augment(x):
        return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)

    return augment(batch), augment(batch)


def train(model, loader, epochs):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    smoother = RecentMean()
    for epoch in range(epochs):
        for batch in loader:
            loss = model.info_nce(*views(batch))
            objective = smoother(loss.detach())
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, objective.item())


if __name__ == "__main__":
    torch.manual_seed(4)
    train(SimCLR(), [torch.randn(10, 12) for _ in range(2)], epochs=4)
