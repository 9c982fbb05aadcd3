import torch
from torch import nn
from torch.distributions import Normal


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 16), nn.ReLU(), nn.Linear(16, n_out))


class Pendulum:
    """A crude inverted pendulum: angle and angular velocity, pushed by a torque."""

    def __init__(self, batch):
        self.state = 0.3 * torch.randn(batch, 2)

    def step(self, torque):
        angle, speed = self.state.unbind(1)
        speed = speed + 0.1 * (torch.sin(angle) + torque.clamp(-2, 2))
        self.state = torch.stack([angle + 0.1 * speed, speed], dim=1)
        return self.state, torch.cos(self.state[:, 0]) - 0.01 * torque.square()


class ContinuousActorCritic:
    def __init__(self, gamma=0.95):
        self.gamma = gamma
        self.actor, self.critic = mlp(2, 1), mlp(2, 1)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=5e-3)

    def policy(self, state):
        return Normal(self.actor(state).squeeze(1), 0.4)

    def value(self, state):
        return self.critic(state).squeeze(1)

    def td_error(self, state, reward, following):
        target = reward + self.gamma * self.value(following).detach()
        return target - self.value(state)

    def learn_critic(self, delta):
        self.critic_opt.zero_grad()
        delta.square().mean().backward()
        self.critic_opt.step()

    def learn_actor(self, log_prob, weight):
        loss = -(log_prob * weight).mean()
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()

    def interact(self, world):
        state = world.state
        dist = self.policy(state)
        torque = dist.sample()
        following, reward = world.step(torque)
        delta = self.td_error(state, reward, following)
        self.learn_critic(delta)
        self.learn_actor(dist.log_prob(torque), delta.detach())
        return reward.mean().item()


if __name__ == "__main__":
    torch.manual_seed(36)
    agent, world = ContinuousActorCritic(), Pendulum(batch=16)
    print([round(agent.interact(world), 3) for _ in range(8)])
