import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal


class Policy(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.body = nn.Linear(n_obs, 24)
        self.mean, self.log_std = nn.Linear(24, n_act), nn.Linear(24, n_act)

    def sample(self, s):
        h = torch.relu(self.body(s))
        dist = Normal(self.mean(h), self.log_std(h).clamp(-5, 1).exp())
        u = dist.rsample()
        logp = (dist.log_prob(u) - torch.log(1 - torch.tanh(u).pow(2) + 1e-6)).sum(-1)
        return torch.tanh(u), logp


class Critic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.q1, self.q2 = (nn.Sequential(nn.Linear(n_obs + n_act, 24), nn.ReLU(), nn.Linear(24, 1)) for _ in "12")

    def forward(self, s, a):
        sa = torch.cat([s, a], dim=-1)
        return self.q1(sa).squeeze(-1), self.q2(sa).squeeze(-1)


class SAC:
    def __init__(self, n_obs=3, n_act=2, gamma=0.95, tau=0.01):
        self.policy, self.critic = Policy(n_obs, n_act), Critic(n_obs, n_act)
        self.target = copy.deepcopy(self.critic)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.gamma, self.tau, self.target_entropy = gamma, tau, -float(n_act)
        self.opt = {
            "critic": torch.optim.Adam(self.critic.parameters(), lr=1e-3),
            "policy": torch.optim.Adam(self.policy.parameters(), lr=1e-3),
            "alpha": torch.optim.Adam([self.log_alpha], lr=1e-3),
        }

    def _step(self, which, loss):
        self.opt[which].zero_grad()
        loss.backward()
        self.opt[which].step()
        return round(loss.item(), 4)

    def update(self, s, a, r, s2):
        with torch.no_grad():
            a2, logp2 = self.policy.sample(s2)
            q_next = torch.min(*self.target(s2, a2)) - self.log_alpha.exp() * logp2
            y = r + self.gamma * q_next
        q1, q2 = self.critic(s, a)
        out = {"critic": self._step("critic", F.mse_loss(q1, y) + F.mse_loss(q2, y))}
        new_a, logp = self.policy.sample(s)
        q = torch.min(*self.critic(s, new_a))
        out["policy"] = self._step("policy", (self.log_alpha.exp().detach() * logp - q).mean())
        out["alpha"] = self._step("alpha", -(self.log_alpha * (logp + self.target_entropy)).mean())
        with torch.no_grad():
            for p, t in zip(self.critic.parameters(), self.target.parameters()):
                t.lerp_(p, self.tau)
        return out


torch.manual_seed(7)
agent = SAC()
for step in range(4):
    s = torch.randn(16, 3)
    a = torch.rand(16, 2) * 2 - 1
    print(step, agent.update(s, a, -(a - s[:, :2]).square().sum(1), torch.randn(16, 3)))
