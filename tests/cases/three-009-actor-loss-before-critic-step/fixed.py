import copy
import torch
from torch import nn
import torch.nn.functional as F


class Critic(nn.Module):
    def __init__(self, state, action, hidden=32):
        super().__init__()
        self.inp = nn.Linear(state + action, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, s, a):
        z = torch.relu(self.inp(torch.cat([s, a], dim=-1)))
        return self.out(z)


class Agent:
    def __init__(self, state=4, action=2):
        self.actor = nn.Sequential(nn.Linear(state, 32), nn.ReLU(), nn.Linear(32, action), nn.Tanh())
        self.critic = Critic(state, action)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def update(self, s, a, r, s2, gamma=0.98):
        with torch.no_grad():
            goal = r + gamma * self.target(s2, self.actor(s2))
        critic_loss = F.mse_loss(self.critic(s, a), goal)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        actor_loss = -self.critic(s, self.actor(s)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        return critic_loss.item(), actor_loss.item()


torch.manual_seed(0)
agent = Agent()
for _ in range(2):
    batch = [torch.randn(16, n) for n in (4, 2, 1, 4)]
    print(agent.update(*batch))
