import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class TimeCondition(nn.Module):
    """Embeds the noise time in [0, 1]."""

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freqs", 2 ** torch.arange(dim // 2) * math.pi)
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        angle = t[:, None] * self.freqs
        return self.net(torch.cat([angle.sin(), angle.cos()], dim=-1))


class ResBlock(nn.Module):
    def __init__(self, channels, dim):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels)
        self.shift = nn.Linear(dim, channels)
        self.condition = None

    def forward(self, x):
        shift = self.shift(self.condition)[:, :, None]
        return x + torch.relu(self.norm(self.conv(x)) + shift)


class Denoiser(nn.Module):
    def __init__(self, channels=8, dim=8, depth=3):
        super().__init__()
        self.time = TimeCondition(dim)
        self.lift = nn.Conv1d(1, channels, 1)
        self.blocks = nn.ModuleList(ResBlock(channels, dim) for _ in range(depth))
        self.drop = nn.Conv1d(channels, 1, 1)

    def forward(self, x, t):
        condition = self.time(t)
        x = self.lift(x)
        for block in self.blocks:
            block.condition = condition
            x = checkpoint(block, x, use_reentrant=True)
        return self.drop(x)


def denoising_loss(model, clean):
    t = torch.rand(len(clean))
    noise = torch.randn_like(clean)
    mixed = (1 - t)[:, None, None] * clean + t[:, None, None] * noise
    return (model(mixed, t) - (noise - clean)).square().mean()


if __name__ == "__main__":
    torch.manual_seed(42)
    model = Denoiser()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        wave = torch.sin(torch.linspace(0, 6, 32) + 6 * torch.rand(4, 1))[:, None]
        loss = denoising_loss(model, wave)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())
