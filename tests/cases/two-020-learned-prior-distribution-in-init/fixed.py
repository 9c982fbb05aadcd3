import torch
from torch import nn
from torch.distributions import Bernoulli, Independent, Normal, kl_divergence


class Encoder(nn.Module):
    def __init__(self, n, h, z):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n, h), nn.Tanh())
        self.mu, self.logstd = nn.Linear(h, z), nn.Linear(h, z)

    def forward(self, x):
        h = self.body(x)
        return Normal(self.mu(h), self.logstd(h).clamp(-4, 2).exp())


class VAE(nn.Module):
    def __init__(self, n=16, h=24, z=3):
        super().__init__()
        self.encoder = Encoder(n, h, z)
        self.decoder = nn.Sequential(nn.Linear(z, h), nn.Tanh(), nn.Linear(h, n))
        self.prior_mu = nn.Parameter(torch.zeros(z))
        self.prior_logstd = nn.Parameter(torch.zeros(z))

    @property
    def prior(self):
        return Normal(self.prior_mu, self.prior_logstd.exp())

    def forward(self, x):
        """Returns the negative ELBO and its two parts."""
        q = self.encoder(x)
        z = q.rsample()
        kl = kl_divergence(q, self.prior).sum(-1)
        rec = -Independent(Bernoulli(logits=self.decoder(z)), 1).log_prob(x)
        return (rec + kl).mean(), rec.mean().item(), kl.mean().item()

    @torch.no_grad()
    def sample(self, n):
        return torch.sigmoid(self.decoder(self.prior.sample((n,))))


def main():
    torch.manual_seed(7)
    vae = VAE()
    opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
    patterns = (torch.rand(4, 16) > 0.5).float()
    print("a priori:", vae.sample(2).mean().item())
    for step in range(6):
        x = patterns[torch.randint(0, 4, (20,))]
        loss, rec, kl = vae(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{step}: {loss.item():.3f} = {rec:.3f} + {kl:.3f}")
        if step == 3:
            print("samples:", vae.sample(2).mean().item())


main()
