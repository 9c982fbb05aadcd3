import random

import torch
from torch import nn


class QNet(nn.Module):
    def __init__(self, n_obs, n_actions):
        super().__init__()
        self.fc1 = nn.Linear(n_obs, 24)
        self.value, self.advantage = nn.Linear(24, 1), nn.Linear(24, n_actions)

    def forward(self, s):
        h = torch.relu(self.fc1(s))
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Chain:
    """Walk to the right end of a chain."""

    def __init__(self, n=6):
        self.n, self.at = n, 0

    def one_hot(self):
        s = torch.zeros(self.n)
        s[self.at] = 1.0
        return s

    def step(self, a):
        before = self.one_hot()
        self.at = max(0, min(self.n - 1, self.at + (1 if a else -1)))
        done = self.at == self.n - 1
        after = self.one_hot()
        if done:
            self.at = 0
        return before, a, float(done), after, float(done)


def collect(env, q, n, eps):
    out = []
    for _ in range(n):
        with torch.no_grad():
            greedy = int(q(env.one_hot()[None]).argmax())
        out.append(env.step(random.randrange(2) if random.random() < eps else greedy))
    s, a, r, s2, d = zip(*out)
    return torch.stack(s), torch.tensor(a), torch.tensor(r), torch.stack(s2), torch.tensor(d)


def fit(q, opt, data, inner_epochs, gamma=0.9):
    s, a, r, s2, d = data
    with torch.no_grad():
        targets = r + gamma * (1 - d) * q(s2).max(1).values
    for _ in range(inner_epochs):
        chosen = q(s).gather(1, a[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, targets)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(q.parameters(), 1.0)
        opt.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(5)
    random.seed(5)
    env, q = Chain(), QNet(6, 2)
    opt = torch.optim.Adam(q.parameters(), lr=1e-2)
    for iteration in range(4):
        data = collect(env, q, 40, eps=0.5)
        print(iteration, fit(q, opt, data, inner_epochs=1 + iteration))
