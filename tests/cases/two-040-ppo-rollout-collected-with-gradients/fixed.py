import torch
from torch import nn

from ppo import PPO, Rollout


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act, width=24):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, n_act))
        self.critic = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs):
        dist = torch.distributions.Categorical(logits=self.actor(obs))
        return dist, self.critic(obs).squeeze(-1)


class Targets:
    """Reward for naming the largest entry of the observation."""

    def __init__(self, n_envs, n):
        self.shape = (n_envs, n)

    def reset(self):
        self.obs = torch.randn(self.shape)
        return self.obs

    def step(self, action):
        reward = (action == self.obs.argmax(1)).float()
        return self.reset(), reward


def collect(env, net, steps):
    roll, obs = Rollout(), env.reset()
    for _ in range(steps):
        with torch.no_grad():
            dist, value = net(obs)
        action = dist.sample()
        following, reward = env.step(action)
        roll.add(obs, action, dist.log_prob(action), reward, value)
        obs = following
    return roll.finish()


if __name__ == "__main__":
    torch.manual_seed(6)
    net = ActorCritic(4, 4)
    agent, env = PPO(net), Targets(8, 4)
    for update in range(3):
        print(update, agent.update(collect(env, net, steps=6)))
