import torch
from torch import nn

from centre_fixed import FeatureCentre


class Critic(nn.Module):
    def __init__(self, n_in, width=24):
        super().__init__()
        self.body = nn.Linear(n_in, width)
        self.centre = FeatureCentre(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = nn.functional.leaky_relu(self.body(x), 0.2)
        return self.out(self.centre(h))


class Generator(nn.Module):
    def __init__(self, n_z, n_out):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_z, 24), nn.ReLU(), nn.Linear(24, n_out))

    def forward(self, z):
        return self.net(z)


def apply(loss, opt):
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def discriminator_step(G, D, opt, real, z):
    fake = G(z).detach()
    real_score, fake_score = D(real), D(fake)
    loss = nn.functional.relu(1 - real_score).mean() + nn.functional.relu(1 + fake_score).mean()
    return apply(loss, opt)


def generator_step(G, D, opt, z):
    return apply(-D(G(z)).mean(), opt)


def main():
    torch.manual_seed(2)
    G, D = Generator(4, 6), Critic(6)
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.0, 0.9))
    D.eval()
    print("scores before training:", D(torch.randn(8, 6)).mean().item())
    D.train()
    for it in range(5):
        real = torch.randn(16, 6) * 0.5 + 1.0
        d = discriminator_step(G, D, opt_d, real, torch.randn(16, 4))
        g = generator_step(G, D, opt_g, torch.randn(16, 4))
        print(it, d, g)


if __name__ == "__main__":
    main()
