import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
T = 50
betas = torch.linspace(1e-4, 0.05, T)
alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)


def sinusoidal(t, dim):
    freqs = torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2))
    args = t[:, None] * freqs[None]
    return torch.cat([args.sin(), args.cos()], dim=-1)


class SimpleUnet(nn.Module):
    def __init__(self, ch=8, t_dim=8):
        super().__init__()
        self.t_dim = t_dim
        self.time_mlp = nn.Sequential(nn.Linear(t_dim, ch), nn.SiLU(), nn.Linear(ch, ch))
        self.inc = nn.Conv2d(1, ch, 3, padding=1)
        self.down = nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(ch, ch, 4, stride=2, padding=1)
        self.outc = nn.Conv2d(2 * ch, 1, 1)

    def forward(self, x, t):
        emb = self.time_mlp(sinusoidal(t, self.t_dim))[:, :, None, None]
        h1 = F.silu(self.inc(x) + emb)
        h2 = F.silu(self.down(h1) + emb)
        return self.outc(torch.cat([self.up(h2), h1], dim=1))


def q_sample(x0, t, noise):
    a = alphas_cumprod[t][:, None, None, None]
    return a.sqrt() * x0 + (1 - a).sqrt() * noise


def get_loss(model, x0):
    t = torch.randint(0, T, (x0.size(0),))
    noise = torch.randn_like(x0)
    return F.l1_loss(model(q_sample(x0, t, noise), t), noise)


model = SimpleUnet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
accumulate = 4
total_loss = 0
for step in range(12):
    x0 = torch.rand(4, 1, 8, 8) * 2 - 1
    loss = get_loss(model, x0) / accumulate
    total_loss += loss
    if (step + 1) % accumulate == 0:
        optimizer.zero_grad()
        total_loss.backward()
        optimizer.step()
        print(f"step {step} | loss {total_loss.item():.4f}")
