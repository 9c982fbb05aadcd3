import torch


class Corridor:
    """Walk right to be rewarded; the position is only seen through noise."""

    def __init__(self, length=6):
        self.length, self.position = length, 0

    def observe(self):
        seen = torch.zeros(1, self.length)
        seen[0, self.position] = 1.0
        return seen + 0.1 * torch.randn(1, self.length)

    def act(self, action):
        self.position = max(0, min(self.length - 1, self.position + (1 if action else -1)))
        reward = float(self.position == self.length - 1)
        if reward:
            self.position = 0
        return reward


class Collector:
    def __init__(self, env, policy):
        self.env, self.policy = env, policy
        self.hidden = policy.initial()

    def collect(self, steps):
        log_probs, values, rewards = [], [], []
        for _ in range(steps):
            dist, value, self.hidden = self.policy(self.env.observe(), self.hidden)
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            values.append(value)
            rewards.append(self.env.act(action.item()))
        return torch.cat(log_probs), torch.cat(values), rewards
