from dataclasses import dataclass, replace

import torch
from torch import nn


@dataclass(frozen=True)
class Belief:
    mean: torch.Tensor
    var: torch.Tensor
    step: int = 0


class LearnedFilter(nn.Module):
    """A Kalman filter with diagonal covariance whose motion and noise are learned."""

    def __init__(self, dim):
        super().__init__()
        self.motion = nn.Linear(dim, dim)
        self.log_process = nn.Parameter(torch.full((dim,), -1.0))
        self.log_noise = nn.Parameter(torch.zeros(dim))

    def predict(self, belief):
        mean = belief.mean + torch.tanh(self.motion(belief.mean))
        return replace(belief, mean=mean, var=belief.var + self.log_process.exp())

    def correct(self, belief, observed):
        gain = belief.var / (belief.var + self.log_noise.exp())
        mean = belief.mean + gain * (observed - belief.mean)
        return replace(belief, mean=mean, var=(1 - gain) * belief.var, step=belief.step + 1)

    def surprise(self, belief, observed):
        var = belief.var + self.log_noise.exp()
        return 0.5 * ((observed - belief.mean) ** 2 / var + var.log()).sum(-1).mean()
