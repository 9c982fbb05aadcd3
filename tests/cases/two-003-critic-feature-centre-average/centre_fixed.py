"""Subtracts a running mean of the features (no scaling, unlike batch norm)."""
import torch
from torch import nn


class FeatureCentre(nn.Module):
    def __init__(self, dim, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("centre", torch.zeros(dim))

    def forward(self, h):
        if self.training:
            batch = h.detach().mean(dim=0)
            self.centre = self.momentum * self.centre + (1 - self.momentum) * batch
        return h - self.centre
