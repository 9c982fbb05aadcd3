import torch
from torch import nn
from torch.distributions import Categorical

from rollout import Collector, Corridor


class RecurrentPolicy(nn.Module):
    def __init__(self, n_obs, width, n_actions):
        super().__init__()
        self.core = nn.GRUCell(n_obs, width)
        self.actor = nn.Linear(width, n_actions)
        self.critic = nn.Linear(width, 1)

    def initial(self):
        return torch.zeros(1, self.core.hidden_size)

    def forward(self, obs, hidden):
        hidden = self.core(obs, hidden)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(1), hidden


def discounted(rewards, gamma=0.95):
    total, out = 0.0, []
    for r in reversed(rewards):
        total = r + gamma * total
        out.append(total)
    return torch.tensor(out[::-1])


def objective(log_probs, values, rewards):
    returns = discounted(rewards)
    advantage = returns - values.detach()
    return -(log_probs * advantage).mean() + 0.5 * (returns - values).square().mean()


def train(iterations=5):
    torch.manual_seed(10)
    policy = RecurrentPolicy(6, 12, 2)
    collector = Collector(Corridor(), policy)
    opt = torch.optim.RMSprop(policy.parameters(), lr=3e-3)
    for it in range(iterations):
        loss = objective(*collector.collect(steps=12))
        opt.zero_grad()
        try:
            loss.backward()
        except RuntimeError:
            print(f"update {it} failed")
            raise
        opt.step()
        print(f"update {it}: {loss.item():.4f}")


if __name__ == "__main__":
    train()
