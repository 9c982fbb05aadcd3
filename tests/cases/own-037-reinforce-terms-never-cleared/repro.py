from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributions import Bernoulli


@dataclass
class Reinforce:
    policy: nn.Module
    opt: torch.optim.Optimizer
    baseline: float = 0.0
    terms: list = field(default_factory=list)
    rewards: list = field(default_factory=list)

    def act(self, obs):
        dist = Bernoulli(logits=self.policy(obs).squeeze(-1))
        action = dist.sample()
        return action, dist.log_prob(action)

    def feedback(self, log_prob, reward):
        self.terms.append(-log_prob * (reward - self.baseline))
        self.rewards.append(reward)

    def finish_episode(self):
        loss = torch.stack(self.terms).sum()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        mean = sum(self.rewards) / len(self.rewards)
        self.baseline += 0.1 * (mean - self.baseline)
        self.rewards.clear()
        return mean


class Gate:
    """Open the gate (1) when the two sensors agree."""

    def read(self):
        self.sensors = torch.randint(0, 2, (2,)).float()
        return self.sensors

    def reward(self, action):
        right = float(self.sensors[0] == self.sensors[1])
        return 1.0 if action.item() == right else -1.0


def play(learner, gate, steps):
    for _ in range(steps):
        action, log_prob = learner.act(gate.read())
        learner.feedback(log_prob, gate.reward(action))
    return learner.finish_episode()


def main(episodes=6):
    torch.manual_seed(35)
    policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    learner = Reinforce(policy, torch.optim.Adam(policy.parameters(), lr=0.02))
    for episode in range(episodes):
        print(episode, play(learner, Gate(), steps=10))


if __name__ == "__main__":
    main()
