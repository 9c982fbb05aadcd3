from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call
import torch.nn.functional as F


@dataclass
class Episode:
    support_x: torch.Tensor
    support_y: torch.Tensor
    query_x: torch.Tensor
    query_y: torch.Tensor


def keyword_episode(ways=3, shots=2, queries=4, dim=12):
    """Keyword spotting: every word is a direction in feature space plus noise."""
    words = torch.randn(ways, dim)

    def draw(n):
        y = torch.arange(ways).repeat_interleave(n)
        return words[y] + 0.3 * torch.randn(len(y), dim), y

    return Episode(*draw(shots), *draw(queries))


class MetaLearner:
    def __init__(self, model, inner_lr, support_share):
        self.model, self.inner_lr, self.share = model, inner_lr, support_share
        self.opt = torch.optim.Adam(model.parameters(), lr=5e-3)

    def weights(self):
        return dict(self.model.named_parameters())

    def adapt(self, loss):
        """One inner gradient step; returns the fast weights."""
        weights = self.weights()
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        return {k: w - self.inner_lr * g for (k, w), g in zip(weights.items(), grads)}

    def outer_loss(self, episode):
        support_loss = F.cross_entropy(self.model(episode.support_x), episode.support_y)
        fast = self.adapt(support_loss)
        logits = functional_call(self.model, fast, (episode.query_x,))
        query_loss = F.cross_entropy(logits, episode.query_y)
        return query_loss + self.share * support_loss

    def meta_step(self, episodes):
        outer = sum(self.outer_loss(e) for e in episodes) / len(episodes)
        self.opt.zero_grad()
        outer.backward()
        self.opt.step()
        return outer.item()


def main():
    torch.manual_seed(39)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))
    learner = MetaLearner(model, inner_lr=0.4, support_share=0.1)
    for it in range(4):
        print(it, learner.meta_step([keyword_episode() for _ in range(3)]))


if __name__ == "__main__":
    main()
