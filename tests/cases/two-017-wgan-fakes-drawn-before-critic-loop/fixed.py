import torch
from torch import nn

from wgan_fixed import WGAN


class Generator(nn.Module):
    def __init__(self, nz=6, n=10):
        super().__init__()
        self.l1, self.l2 = nn.Linear(nz, 24), nn.Linear(24, n)

    def forward(self, z):
        return self.l2(torch.relu(self.l1(z)))


class Critic(nn.Module):
    def __init__(self, n=10):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n, 24), nn.Linear(24, 24), nn.Linear(24, 1)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if i:
                x = nn.functional.leaky_relu(x, 0.2)
            x = layer(x)
        return x.squeeze(-1)


def batches(n):
    for _ in range(n):
        yield torch.randn(32, 10).cumsum(1) / 3


torch.manual_seed(4)
gan = WGAN(Generator(), Critic(), n_critic=3)
for i, real in enumerate(batches(4)):
    print(i, gan.iteration(real))
