from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Memory:
    h: torch.Tensor
    c: torch.Tensor

    @classmethod
    def empty(cls, width):
        return cls(torch.zeros(1, width), torch.zeros(1, width))


class MyLSTMCell(nn.Module):
    """Written out by hand to be able to change the gates later."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.x2g = nn.Linear(n_in, 4 * n_hidden)
        self.h2g = nn.Linear(n_hidden, 4 * n_hidden, bias=False)

    def forward(self, x, memory):
        gates = self.x2g(x) + self.h2g(memory.h)
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * memory.c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return Memory(h, c)


class Agent(nn.Module):
    def __init__(self, n_obs, n_actions, width=16):
        super().__init__()
        self.width = width
        self.cell = MyLSTMCell(n_obs, width)
        self.pi = nn.Linear(width, n_actions)
        self.reset()

    def reset(self):
        self.memory = Memory.empty(self.width)

    def act(self, obs):
        self.memory = self.cell(obs, self.memory)
        dist = Categorical(logits=self.pi(self.memory.h))
        action = dist.sample()
        return action, dist.log_prob(action)


class Bandit:
    """The rewarded arm moves on; an episode lasts 15 steps."""

    def __init__(self, arms):
        self.arms, self.t = arms, 0

    def step(self, action):
        reward = float(action.item() == (self.t // 3) % self.arms)
        self.t += 1
        obs = torch.zeros(1, self.arms)
        obs[0, action] = reward
        return obs, reward, self.t % 15 == 0


def update(opt, log_probs, rewards):
    advantage = torch.tensor(rewards) - sum(rewards) / len(rewards)
    loss = -(torch.cat(log_probs) * advantage).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    env, agent = Bandit(4), Agent(4, 4)
    opt = torch.optim.Adam(agent.parameters(), lr=1e-2)
    obs, log_probs, rewards = torch.zeros(1, 4), [], []
    for step in range(1, 46):
        action, log_prob = agent.act(obs)
        obs, reward, done = env.step(action)
        log_probs.append(log_prob)
        rewards.append(reward)
        if step % 5 == 0:
            print(step, update(opt, log_probs, rewards))
            log_probs, rewards = [], []
            agent.memory = Memory(agent.memory.h.detach(), agent.memory.c.detach())
        if done:
            agent.reset()
