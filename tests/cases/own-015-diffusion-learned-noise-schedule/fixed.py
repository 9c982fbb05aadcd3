import torch
from torch import nn


class Schedule(nn.Module):
    """Noise levels for n steps, with increments that are learned."""

    def __init__(self, n_steps):
        super().__init__()
        self.raw = nn.Parameter(torch.linspace(-4.0, -1.0, n_steps))

    def tabulate(self):
        alpha_bar = torch.cumprod(1.0 - torch.sigmoid(self.raw), dim=0)
        signal = alpha_bar.sqrt()
        noise = (1.0 - alpha_bar).sqrt()
        return {"signal": signal, "noise": noise}


class Denoiser(nn.Module):
    def __init__(self, dim, n_steps):
        super().__init__()
        self.time = nn.Embedding(n_steps, 16)
        self.net = nn.Sequential(nn.Linear(dim + 16, 32), nn.SiLU(), nn.Linear(32, dim))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], dim=-1))


def diffuse(x, t, eps, table):
    return table["signal"][t, None] * x + table["noise"][t, None] * eps


def denoising_loss(denoiser, x, table):
    t = torch.randint(0, len(table["signal"]), (len(x),))
    eps = torch.randn_like(x)
    noisy = diffuse(x, t, eps, table)
    return (denoiser(noisy, t) - eps).square().mean()


def train_epoch(denoiser, schedule, opt, data, batch_size):
    losses = []
    for x in data[torch.randperm(len(data))].split(batch_size):
        opt.zero_grad(set_to_none=True)
        loss = denoising_loss(denoiser, x, schedule.tabulate())
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main(n_steps=20):
    torch.manual_seed(13)
    angle = torch.rand(128) * 2 * torch.pi
    data = torch.stack([angle.cos(), angle.sin()], dim=1)
    schedule, denoiser = Schedule(n_steps), Denoiser(2, n_steps)
    opt = torch.optim.AdamW([*schedule.parameters(), *denoiser.parameters()], lr=2e-3)
    for epoch in range(3):
        print(f"epoch {epoch}", train_epoch(denoiser, schedule, opt, data, 32))


if __name__ == "__main__":
    main()
