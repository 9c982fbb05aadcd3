import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_actions, width=16):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh())
        self.actor = nn.Linear(width, n_actions)
        self.critic = nn.Linear(width, 1)

    def forward(self, obs):
        features = self.torso(obs)
        value = self.critic(features).squeeze(-1)
        return Categorical(logits=self.actor(features)), value


class Bandits:
    """Contextual bandits; the right arm is hidden in the observation."""

    def __init__(self, n_obs, n_actions):
        self.secret = torch.randn(n_obs, n_actions)

    def sample(self, n):
        return torch.randn(n, len(self.secret))

    def reward(self, obs, actions):
        return (obs @ self.secret).gather(1, actions[:, None]).squeeze(1)


class Agent:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters(), lr=5e-3)

    def update_critic(self, value, reward):
        return nn.functional.mse_loss(value, reward)

    def update_actor(self, dist, actions, advantage, bonus=0.01):
        loss = -(dist.log_prob(actions) * advantage).mean() - bonus * dist.entropy().mean()
        return loss

    def learn(self, env, batch):
        obs = env.sample(batch)
        dist, value = self.net(obs)
        actions = dist.sample()
        reward = env.reward(obs, actions)
        advantage = (reward - value).detach()
        self.opt.zero_grad()
        value_loss = self.update_critic(value, reward)
        policy_loss = self.update_actor(dist, actions, advantage)
        (value_loss + policy_loss).backward()
        self.opt.step()
        return value_loss.item(), policy_loss.item(), reward.mean().item()


if __name__ == "__main__":
    torch.manual_seed(23)
    agent, env = Agent(ActorCritic(5, 3)), Bandits(5, 3)
    for update in range(5):
        print(update, agent.learn(env, batch=32))
