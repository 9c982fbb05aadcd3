"""Advantage actor-critic with a shared trunk, n-step returns and an entropy bonus on a corridor."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class Corridor:
    """Walk right along ten cells; the far end pays one, every move costs a little."""

    def reset(self):
        self.cell, self.time = 0, 0
        return self.observe()

    def observe(self):
        return F.one_hot(torch.tensor(self.cell), 10).float()

    def step(self, action):
        self.time += 1
        self.cell = max(0, min(9, self.cell + (1 if action == 1 else -1)))
        done = self.cell == 9 or self.time == 30
        return self.observe(), 1.0 if self.cell == 9 else -0.02, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 24), nn.Tanh())
        self.actor = nn.Linear(24, 2)
        self.critic = nn.Linear(24, 1)

    def forward(self, x):
        h = self.trunk(x)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


torch.manual_seed(12)
env, model = Corridor(), ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
state, episode, returns_seen = env.reset(), 0.0, []

for _ in range(50):
    log_probs, values, rewards, masks, entropies = [], [], [], [], []
    for _ in range(8):
        dist, value = model(state)
        action = dist.sample()
        state, reward, done = env.step(action.item())
        episode += reward
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(value)
        rewards.append(reward)
        masks.append(0.0 if done else 1.0)
        if done:
            returns_seen.append(episode)
            state, episode = env.reset(), 0.0
    with torch.no_grad():
        running = model(state)[1]
    targets = []
    for reward, mask in zip(reversed(rewards), reversed(masks), strict=True):
        running = reward + 0.95 * mask * running
        targets.insert(0, running)
    advantage = torch.stack(targets) - torch.stack(values)
    policy_loss = -(torch.stack(log_probs) * advantage.detach()).mean()
    loss = policy_loss + 0.5 * advantage.pow(2).mean() - 0.01 * torch.stack(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(len(returns_seen), (sum(returns_seen) / len(returns_seen)).hex(), loss.item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
