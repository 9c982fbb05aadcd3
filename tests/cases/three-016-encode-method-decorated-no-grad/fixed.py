import torch
from torch import nn


class SongEmbedder(nn.Module):
    def __init__(self, bins=16, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(bins, 32), nn.ELU(), nn.Linear(32, dim))

    def encode(self, spectrogram):
        e = self.net(spectrogram.mean(dim=1))
        return e / e.norm(dim=-1, keepdim=True)

    def distance(self, a, b):
        return (self.encode(a) - self.encode(b)).square().sum(-1)


def triplet(model, anchor, same, other, margin=2.0):
    return (model.distance(anchor, same) - model.distance(anchor, other) + margin).clamp_min(0).mean()


def sample(count, centre):
    return centre + 0.3 * torch.randn(count, 5, 16)


torch.manual_seed(9)
embedder = SongEmbedder()
opt = torch.optim.Adam(embedder.parameters(), lr=3e-3)
for epoch in range(3):
    c1, c2 = torch.randn(16), torch.randn(16)
    loss = triplet(embedder, sample(6, c1), sample(6, c1), sample(6, c2))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
with torch.no_grad():
    print(embedder.encode(sample(2, c1)).norm(dim=-1))
