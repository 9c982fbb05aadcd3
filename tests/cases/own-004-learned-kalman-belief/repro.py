import math
from dataclasses import replace

import torch

from filters import Belief, LearnedFilter


class Tracker:
    def __init__(self, model, batch, dim):
        self.model = model
        self.belief = Belief(torch.zeros(batch, dim), torch.ones(batch, dim))

    def observe(self, observed):
        prior = self.model.predict(self.belief)
        cost = self.model.surprise(prior, observed)
        self.belief = self.model.correct(prior, observed)
        return cost


def trajectory(steps, batch, dim):
    phase = torch.rand(batch, dim) * math.pi
    for t in range(steps):
        yield torch.sin(0.3 * t + phase) + 0.05 * torch.randn(batch, dim)


def train(window=5, batch=4, dim=3):
    torch.manual_seed(8)
    tracker = Tracker(LearnedFilter(dim), batch, dim)
    opt = torch.optim.Adam(tracker.model.parameters(), lr=0.02)
    costs = []
    for observed in trajectory(30, batch, dim):
        costs.append(tracker.observe(observed))
        if len(costs) == window:
            loss = sum(costs) / window
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"after {tracker.belief.step} steps: {loss.item():.4f}")
            costs.clear()


if __name__ == "__main__":
    train()
