import torch
from torch import nn
from torch.nn.functional import softplus


class Generator(nn.Module):
    def __init__(self, nz=8, ch=8):
        super().__init__()
        self.fc = nn.Linear(nz, ch * 16)
        self.conv = nn.Conv2d(ch, 1, 3, padding=1)
        self.ch = ch

    def forward(self, z):
        h = torch.relu(self.fc(z)).view(-1, self.ch, 4, 4)
        h = nn.functional.interpolate(h, scale_factor=2)
        return torch.tanh(self.conv(h))


class Discriminator(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, ch, 3, stride=2, padding=1), nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.out = nn.Linear(ch * 4, 1)

    def forward(self, x):
        h = nn.functional.leaky_relu(self.conv1(x), 0.2)
        h = nn.functional.leaky_relu(self.conv2(h), 0.2)
        return self.out(h.flatten(1)).squeeze(1)


def r1_penalty(scores, images):
    (gradient,) = torch.autograd.grad(scores.sum(), images, create_graph=True)
    return gradient.square().sum((1, 2, 3)).mean()


class Trainer:
    def __init__(self, lr=2e-4, gamma=1.0, r1_every=4):
        self.G, self.D = Generator(), Discriminator()
        self.g_opt = torch.optim.Adam(self.G.parameters(), lr=lr, betas=(0.0, 0.99))
        self.d_opt = torch.optim.Adam(self.D.parameters(), lr=lr, betas=(0.0, 0.99))
        self.gamma, self.r1_every, self.it = gamma, r1_every, 0

    def d_step(self, real, z):
        real = real.requires_grad_(self.it % self.r1_every == 0 and self.it > 0)
        with torch.no_grad():
            fake = self.G(z)
        fake_scores, real_scores = self.D(fake), self.D(real)
        loss = softplus(fake_scores).mean() + softplus(-real_scores).mean()
        if real.requires_grad:
            loss = loss + 0.5 * self.gamma * r1_penalty(real_scores, real)
        self.d_opt.zero_grad()
        loss.backward()
        self.d_opt.step()
        return loss.item()

    def g_step(self, z):
        loss = softplus(-self.D(self.G(z))).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return loss.item()

    def train(self, n):
        for self.it in range(n):
            real = torch.rand(6, 1, 8, 8) * 2 - 1
            d = self.d_step(real, torch.randn(6, 8))
            print(self.it, d, self.g_step(torch.randn(6, 8)))


if __name__ == "__main__":
    torch.manual_seed(8)
    Trainer().train(6)
