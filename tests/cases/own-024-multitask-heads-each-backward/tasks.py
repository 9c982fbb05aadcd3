from dataclasses import dataclass
from typing import Callable

from torch import nn


@dataclass
class Task:
    name: str
    head: nn.Module
    criterion: Callable
    weight: float = 1.0

    def contribute(self, features, target):
        """Add this task's gradient and return its loss for the log."""
        loss = self.weight * self.criterion(self.head(features), target)
        loss.backward()
        return loss.item()
