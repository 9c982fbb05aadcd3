import torch
from torch import nn
from torch.nn.functional import softplus

from spectral_fixed import SNLinear


class Critic(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.l1, self.l2, self.l3 = SNLinear(n, 20), SNLinear(20, 20), SNLinear(20, 1)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.l1(x), 0.1)
        x = nn.functional.leaky_relu(self.l2(x), 0.1)
        return self.l3(x)


class Generator(nn.Module):
    def __init__(self, nz, n):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(nz, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, n))

    def forward(self, z):
        return self.net(z)


def snapshot(G, D, z):
    G.eval(), D.eval()
    with torch.no_grad():
        print("   score of samples", D(G(z)).mean().item())
    G.train(), D.train()


def main():
    torch.manual_seed(9)
    G, D = Generator(5, 8), Critic(8)
    opt_g = torch.optim.Adam(G.parameters(), 1e-4, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), 4e-4, betas=(0.5, 0.9))
    fixed = torch.randn(10, 5)
    for epoch in range(2):
        snapshot(G, D, fixed)
        for it in range(3):
            real = torch.randn(24, 8).abs()
            fake = G(torch.randn(24, 5))
            d_loss = softplus(-D(real)).mean() + softplus(D(fake.detach())).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
            g_loss = softplus(-D(fake)).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
            print(epoch, it, d_loss.item(), g_loss.item())


if __name__ == "__main__":
    main()
