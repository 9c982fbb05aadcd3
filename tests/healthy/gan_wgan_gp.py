"""A Wasserstein GAN with gradient penalty and several critic steps for each generator step."""

import torch
from torch import nn

torch.manual_seed(11)
LAMBDA, CRITIC_ITERS = 10.0, 3

generator = nn.Sequential(nn.Linear(2, 24), nn.ReLU(True), nn.Linear(24, 2))
critic = nn.Sequential(
    nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1)
)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))


def sample_real(n):
    angle = 2 * torch.pi * torch.rand(n)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(n, 2)


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    (grads,) = torch.autograd.grad(
        outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores), create_graph=True
    )
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


for step in range(15):
    for _ in range(CRITIC_ITERS):
        real = sample_real(32)
        with torch.no_grad():
            fake = generator(torch.randn(32, 2))
        penalty = gradient_penalty(real, fake)
        loss_c = critic(fake).mean() - critic(real).mean() + LAMBDA * penalty
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()

    for p in critic.parameters():
        p.requires_grad_(False)
    loss_g = -critic(generator(torch.randn(32, 2))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    for p in critic.parameters():
        p.requires_grad_(True)
    if step % 5 == 4:
        print(step, loss_c.item().hex(), penalty.item().hex(), loss_g.item().hex())

for name, net in (("generator", generator), ("critic", critic)):
    print(name, sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
    print(name, sum(p.double().sum() for p in net.parameters()).item().hex())
