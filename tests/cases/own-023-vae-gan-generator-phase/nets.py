import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, dim, latent):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 24), nn.LeakyReLU(0.2), nn.Linear(24, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 24), nn.LeakyReLU(0.2), nn.Linear(24, dim))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        kl = 0.5 * (mean.square() + log_var.exp() - 1.0 - log_var).sum(1).mean()
        return torch.sigmoid(self.decoder(z)), kl


def make_critic(dim):
    return nn.Sequential(nn.Linear(dim, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
