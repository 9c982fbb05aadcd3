"""Which parameters optimizers step over because no gradient has come, or only zeros have.

Nothing is hooked: torch's optimizers read ``.grad`` of each parameter and write to those that have
one, and the mode sees both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

# After so many steps without a gradient a parameter's name is looked up, while it can be.
NAMED_AFTER = 2
LOOKUPS = 4
# Gradients of so many steps are compared with zero on a device.
COMPARED = 4

# Nodes whose derivative is zero everywhere.
ZERO_KINDS = ("RoundBackward", "SignBackward", "FloorBackward", "CeilBackward", "TruncBackward")


class Training:
    """What is known of the parameters of optimizers, by their ids."""

    def __init__(self) -> None:
        # Steps that found no gradient, and steps whose gradient was all zeros.
        self.without: dict[int, int] = {}
        self.zero: dict[int, int] = {}
        # Parameters that were written to by a step, and those with a gradient that was not zero.
        self.stepped: set[int] = set()
        self.moved: set[int] = set()
        # (number, kind) of nodes with a zero derivative that a backward has walked.
        self.zero_nodes: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.lookups = 0
        self.due = False

    def missed(self, parameter: torch.Tensor) -> None:
        """Note that a step found no gradient."""
        key = id(parameter)
        if key in self.stepped or not parameter.requires_grad:
            return
        count = self.without[key] = self.without.get(key, 0) + 1
        self.due = self.due or (count == NAMED_AFTER and self.lookups < LOOKUPS)

    def wrote(self, parameters: Iterable[Any]) -> None:
        """Note that a step wrote to some parameters."""
        for parameter in parameters:
            key = id(parameter)
            if key not in self.stepped:
                self.stepped.add(key)
                self.without.pop(key, None)
            if self.zero_nodes and key not in self.moved:
                self._compare(key, parameter)

    def _compare(self, key: int, parameter: torch.Tensor) -> None:
        count = self.zero.get(key, 0)
        if count >= COMPARED and parameter.device.type != "cpu":
            return  # each comparison would make the program wait for the device
        gradient = parameter.grad
        if gradient is None or gradient.layout != torch.strided or bool(gradient.any()):
            self.moved.add(key)
            self.zero.pop(key, None)
            return
        self.zero[key] = count + 1
        self.due = self.due or (count + 1 == NAMED_AFTER and self.lookups < LOOKUPS)

    def lost(self, steps: int) -> dict[int, tuple[str, int]]:
        """id -> ("none" or "zero", steps) of what got nothing in at least so many steps."""
        found = {k: ("none", n) for k, n in self.without.items() if n >= steps}
        if self.zero_nodes:
            found.update((k, ("zero", n)) for k, n in self.zero.items() if n >= steps)
        return found
