"""An actor and a critic on one body: three losses, one backward, and values that are targets.

Walkers start in the middle of a corridor; its right end pays 1, its left end nothing. Both losses
share the body's graph, which one pass walks once. What the critic says of the next state is a
target, and the advantage is a weight: both are detached, or they would be trained themselves.
"""

import torch
import torch.nn.functional as F
from torch import nn

from onegraph.lifetime import backward_sum, detach

CELLS, WALKERS, STEPS, TURNS, DISCOUNT = 9, 64, 8, 60, 0.95


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh())
        self.actor = nn.Linear(32, 2)
        self.critic = nn.Linear(32, 1)

    def forward(self, places):
        hidden = self.body(F.one_hot(places, CELLS).float())
        return torch.distributions.Categorical(logits=self.actor(hidden)), self.critic(hidden)[:, 0]


def walk(places, actions):
    """One step: the new places, the rewards, and whether each walk is over; it then begins anew."""
    places = places + 2 * actions - 1
    over = (places == 0) | (places == CELLS - 1)
    rewards = (places == CELLS - 1).float()
    return torch.where(over, CELLS // 2, places), rewards, over


torch.manual_seed(0)
model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
places = torch.full((WALKERS,), CELLS // 2)

for turn in range(TURNS + 1):
    log_probs, values, entropies, rewards, ends = [], [], [], [], []
    for _ in range(STEPS):
        policy, value = model(places)
        actions = policy.sample()
        places, reward, over = walk(places, actions)
        log_probs.append(policy.log_prob(actions))
        values.append(value)
        entropies.append(policy.entropy())
        rewards.append(reward)
        ends.append(over)
    # What is expected after the last step, and from there back what each step was worth.
    worth, targets = detach(model(places)[1]), []
    for reward, over in zip(reversed(rewards), reversed(ends), strict=True):
        worth = reward + DISCOUNT * worth * ~over
        targets.insert(0, worth)
    values, targets = torch.stack(values), torch.stack(targets)
    advantage = detach(targets - values)
    losses = {
        "actor": -(torch.stack(log_probs) * advantage).mean(),
        "critic": F.mse_loss(values, targets),
        "entropy": -torch.stack(entropies).mean(),
    }
    optimizer.zero_grad()
    parts = backward_sum(losses, {"critic": 0.5, "entropy": 0.01})
    optimizer.step()
    if turn % 20 == 0:
        missed = sum(over.sum().item() for over in ends) - torch.stack(rewards).sum().item()
        told = "  ".join(f"{name} {value:+.3f}" for name, value in parts.items())
        print(f"turn {turn:2}  {told}  wrong ends {missed:.0f}")
