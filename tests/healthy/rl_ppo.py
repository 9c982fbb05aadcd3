"""Proximal policy optimisation with a no_grad rollout, GAE and several epochs of minibatches."""

import torch
from torch import nn
from torch.distributions import Normal


class Agent(nn.Module):
    def __init__(self, obs=3, act=1):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(obs, 16), nn.Tanh(), nn.Linear(16, act))
        self.value = nn.Sequential(nn.Linear(obs, 16), nn.Tanh(), nn.Linear(16, 1))
        self.logstd = nn.Parameter(torch.zeros(1, act))

    def act(self, obs, action=None):
        dist = Normal(self.mean(obs), self.logstd.exp().expand(obs.size(0), -1))
        if action is None:
            action = dist.sample()
        logp, entropy = dist.log_prob(action).sum(1), dist.entropy().sum(1)
        return action, logp, entropy, self.value(obs).squeeze(1)


def env_step(obs, action):
    """Drive three coordinates to zero with one control, in a batch of environments."""
    drift = obs @ torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 0.9]])
    new = drift + 0.3 * action.clamp(-1, 1)
    return new, -new.pow(2).mean(1)


torch.manual_seed(14)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
STEPS, ENVS, GAMMA, LAM, CLIP = 16, 4, 0.95, 0.9, 0.2

for iteration in range(5):
    next_obs = torch.randn(ENVS, 3)
    obs, actions = torch.zeros(STEPS, ENVS, 3), torch.zeros(STEPS, ENVS, 1)
    logps, rewards, values = (torch.zeros(STEPS, ENVS) for _ in range(3))
    with torch.no_grad():
        for t in range(STEPS):
            obs[t] = next_obs
            actions[t], logps[t], _, values[t] = agent.act(next_obs)
            next_obs, rewards[t] = env_step(next_obs, actions[t])
        last, advantages = agent.value(next_obs).squeeze(1), torch.zeros_like(rewards)
        running = torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            following = last if t == STEPS - 1 else values[t + 1]
            running = rewards[t] + GAMMA * following - values[t] + GAMMA * LAM * running
            advantages[t] = running
        targets = advantages + values
    b_obs, b_act = obs.flatten(0, 1), actions.flatten(0, 1)
    b_logp, b_adv, b_ret = logps.flatten(), advantages.flatten(), targets.flatten()
    for _ in range(3):
        for idx in torch.randperm(STEPS * ENVS).split(16):
            _, logp, entropy, value = agent.act(b_obs[idx], b_act[idx])
            ratio = (logp - b_logp[idx]).exp()
            adv = (b_adv[idx] - b_adv[idx].mean()) / (b_adv[idx].std() + 1e-8)
            pg = torch.max(-adv * ratio, -adv * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            loss = pg + 0.5 * (value - b_ret[idx]).pow(2).mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(iteration, rewards.mean().item().hex(), loss.item().hex())
print("parameters", sum(p.double().sum() for p in agent.parameters()).item().hex())
