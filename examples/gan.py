"""A generative adversarial network: one forward of the generator serves both players.

The fakes are made once a turn. The critic sees them detached; the generator's loss then comes back
to them as to a leaf, and one backward goes on through the generator, whose weights nobody has
touched meanwhile. The critic's step in between is allowed, since its graph is gone by then.
"""

import torch
import torch.nn.functional as F
from torch import nn

from onegraph.lifetime import backward_sum, detach, split_at

TURNS, BATCH = 600, 128


def make_mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 32), nn.LeakyReLU(0.2), nn.Linear(32, n_out))


def real_points():
    """Points around (2, -1), twice as wide as high."""
    return torch.randn(BATCH, 2) * torch.tensor([1.0, 0.5]) + torch.tensor([2.0, -1.0])


def loss_of(scores, real):
    target = torch.ones_like(scores) if real else torch.zeros_like(scores)
    return F.binary_cross_entropy_with_logits(scores, target)


def distance(fakes):
    """How far the mean and the spread of the fakes are from the truth."""
    apart = fakes.mean(0) - torch.tensor([2.0, -1.0])
    wider = fakes.std(0) - torch.tensor([1.0, 0.5])
    return (apart.norm() + wider.norm()).item()


torch.manual_seed(0)
generator, critic = make_mlp(4, 2), make_mlp(2, 1)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.99))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.99))

for turn in range(TURNS + 1):
    generator_optimizer.zero_grad()
    with split_at(generator(torch.randn(BATCH, 4))) as fakes:
        critic_optimizer.zero_grad()
        parts = backward_sum(
            {
                "real": loss_of(critic(real_points()), real=True),
                "fake": loss_of(critic(detach(fakes)), real=False),
            }
        )
        critic_optimizer.step()
        loss_of(critic(fakes), real=True).backward()
    generator_optimizer.step()
    if turn % 200 == 0:
        told = "  ".join(f"{name} {value:.3f}" for name, value in parts.items())
        print(f"turn {turn:3}  {told}  distance {distance(detach(fakes)):.4f}")
