import random

import torch
from torch import nn


class Representation(nn.Module):
    def __init__(self, n_obs, dim):
        super().__init__()
        self.net = nn.Linear(n_obs, dim)

    def forward(self, obs):
        return torch.tanh(self.net(obs))


class Dynamics(nn.Module):
    def __init__(self, dim, n_actions):
        super().__init__()
        self.emb = nn.Embedding(n_actions, dim)
        self.net = nn.Linear(2 * dim, dim)
        self.reward = nn.Linear(dim, 1)

    def forward(self, s, a):
        s = torch.tanh(self.net(torch.cat([s, self.emb(a)], dim=-1)))
        return s, self.reward(s).squeeze(-1)


class Replay:
    def __init__(self, capacity=40):
        self.steps, self.capacity = [], capacity

    def add(self, step):
        self.steps = (self.steps + [step])[-self.capacity :]

    def sample(self):
        return random.choice(self.steps)


class Agent:
    def __init__(self, n_obs=6, dim=8, n_actions=3, unroll=3):
        self.h, self.g = Representation(n_obs, dim), Dynamics(dim, n_actions)
        self.v = nn.Linear(dim, 1)
        self.unroll, self.n_actions = unroll, n_actions
        params = [*self.h.parameters(), *self.g.parameters(), *self.v.parameters()]
        self.opt = torch.optim.Adam(params, lr=1e-3)

    def choose(self, latent):
        with torch.no_grad():
            values = [self.g(latent, torch.tensor(a))[1].item() for a in range(self.n_actions)]
        return values.index(max(values)) if random.random() > 0.2 else random.randrange(self.n_actions)

    def play(self, replay, moves=12):
        for _ in range(moves):
            obs = torch.randn(6)
            latent = self.h(obs)
            action = self.choose(latent)
            replay.add({"latent": latent, "obs": obs, "actions": [action, 0, 1], "rewards": [obs[action].item()] * 3})

    def learn(self, step):
        s = self.h(step["obs"])
        loss = (self.v(s).squeeze() - sum(step["rewards"])).pow(2)
        for a, r in zip(step["actions"], step["rewards"]):
            s, predicted = self.g(s, torch.tensor(a))
            loss = loss + (predicted - r).pow(2)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(7)
    random.seed(4)
    agent, replay = Agent(), Replay()
    for iteration in range(6):
        agent.play(replay)
        for _ in range(3):
            print(iteration, agent.learn(replay.sample()))
