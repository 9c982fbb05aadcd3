"""REINFORCE with saved log-probabilities and a moving baseline on a small balancing task."""

import math
from collections import deque

import torch
from torch import nn
from torch.distributions import Categorical


class Pole:
    """A pole to hold upright by pushing left or right."""

    def reset(self, start):
        self.angle, self.speed = start, 0.0
        return torch.tensor([self.angle, self.speed])

    def step(self, action):
        push = 1.0 if action else -1.0
        self.speed += 0.05 * (9.8 * math.sin(self.angle) * 0.5 + 3.0 * push)
        self.angle += 0.05 * self.speed
        return torch.tensor([self.angle, self.speed]), 1.0, abs(self.angle) > 0.4


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(2, 24)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(24, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        return self.affine2(torch.relu(self.dropout(self.affine1(x)))).softmax(-1)


def finish_episode(policy, optimizer, baseline):
    total, returns = 0.0, deque()
    for r in policy.rewards[::-1]:
        total = r + 0.97 * total
        returns.appendleft(total)
    returns = torch.tensor(list(returns)) - baseline
    losses = [-lp * ret for lp, ret in zip(policy.saved_log_probs, returns, strict=True)]
    optimizer.zero_grad()
    loss = torch.stack(losses).sum()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return loss.item(), total


torch.manual_seed(543)
env, policy = Pole(), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
baseline, loss = 0.0, 0.0
for episode in range(30):
    state = env.reset(0.02 * (episode % 5 - 2))
    for _t in range(40):
        dist = Categorical(policy(state))
        action = dist.sample()
        policy.saved_log_probs.append(dist.log_prob(action))
        state, reward, done = env.step(action.item())
        policy.rewards.append(reward)
        if done:
            break
    loss, total = finish_episode(policy, optimizer, baseline)
    baseline = 0.9 * baseline + 0.1 * total
    if episode % 10 == 9:
        print(episode, loss.hex(), baseline.hex())
print("parameters", sum(p.double().sum() for p in policy.parameters()).item().hex())
