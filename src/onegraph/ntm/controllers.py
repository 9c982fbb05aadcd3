"""What steers the heads: the protocol that any module may follow, and three that do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# A tensor, or tuples (named or not), lists and dicts of such; None and () hold nothing.
Nest: TypeAlias = Any


@runtime_checkable
class Controller(Protocol):
    """What `NTMCell` asks of the module that steers its heads.

    It is called once a time step as ``output, state = controller(x, state)`` with x (B, the
    cell's input size + read heads · memory width): the input followed by what was read last. It
    keeps nothing between calls; what it must remember it returns as its state, a nest of tensors
    whose first dimension is the batch.
    """

    output_size: int

    def initial_state(self, batch: int, device: torch.device, dtype: torch.dtype) -> Nest:
        """The state before the first step, for ``batch`` samples."""

    def __call__(self, x: Tensor, state: Nest) -> tuple[Tensor, Nest]:
        """One step; returns the output (B, output_size) and the next state."""


class LSTMController(nn.Module):
    """A long short-term memory; its state is (hidden, cell), each (B, hidden_size)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = hidden_size
        # One matrix for [input, hidden]; its rows are those of the input gate, the forget gate, the
        # output gate and the candidate.
        self.weight = nn.Parameter(torch.empty(4 * hidden_size, input_size + hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        _draw_uniform(hidden_size, self.weight, self.bias)

    def initial_state(
        self, batch: int, device: torch.device, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Zeros."""
        zeros = torch.zeros(batch, self.output_size, device=device, dtype=dtype)
        return zeros, zeros

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One step of a batch."""
        hidden, cell = state
        size = self.output_size
        sums = F.linear(torch.cat((x, hidden), -1), self.weight, self.bias)
        if sums.dtype != cell.dtype:
            sums = sums.to(cell.dtype)
        gates, candidate = sums.split((3 * size, size), -1)
        take, keep, emit = gates.sigmoid().split(size, -1)
        cell = torch.addcmul(keep * cell, take, candidate.tanh())
        hidden = emit * cell.tanh()
        return hidden, (hidden, cell)


class GRUController(nn.Module):
    """A gated recurrent unit, as in `torch.nn.GRUCell`; its state is its output."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden_size, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(3 * hidden_size))
        self.bias_hh = nn.Parameter(torch.empty(3 * hidden_size))
        _draw_uniform(hidden_size, *self.parameters())

    def initial_state(self, batch: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Zeros."""
        return torch.zeros(batch, self.output_size, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of a batch."""
        size = self.output_size
        outer = F.linear(x, self.weight_ih, self.bias_ih).to(state.dtype)
        inner = F.linear(state, self.weight_hh, self.bias_hh).to(state.dtype)
        outer_gates, outer_candidate = outer.split((2 * size, size), -1)
        inner_gates, inner_candidate = inner.split((2 * size, size), -1)
        reset, keep = (outer_gates + inner_gates).sigmoid().split(size, -1)
        candidate = torch.addcmul(outer_candidate, reset, inner_candidate).tanh()
        state = torch.lerp(candidate, state, keep)
        return state, state


class FeedForwardController(nn.Module):
    """One layer of tanh units that remembers nothing: all memory is the external one."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = hidden_size
        self.linear = nn.Linear(input_size, hidden_size)

    def initial_state(self, batch: int, device: torch.device, dtype: torch.dtype) -> tuple[()]:
        """Nothing."""
        return ()

    def forward(self, x: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        """One step of a batch."""
        return self.linear(x).tanh(), state


CONTROLLERS: dict[str, Callable[[int, int], nn.Module]] = {
    "lstm": LSTMController,
    "gru": GRUController,
    "feedforward": FeedForwardController,
}


def make_controller(controller: str | nn.Module, input_size: int, hidden_size: int) -> nn.Module:
    """The named controller, made anew, or the given module once it is seen to follow `Controller`.

    Args:
        controller: a key of `CONTROLLERS`, or a module.
        input_size: the width of what it is called with.
        hidden_size: its output size; a given module has its own.
    """
    if isinstance(controller, str):
        if controller not in CONTROLLERS:
            known = ", ".join(map(repr, CONTROLLERS))
            raise ValueError(f"unknown controller {controller!r}; known are {known}, or a module")
        return CONTROLLERS[controller](input_size, hidden_size)
    missing = [name for name in ("output_size", "initial_state") if not hasattr(controller, name)]
    if missing:
        raise TypeError(
            f"{type(controller).__name__} cannot steer an NTM: it has no "
            f"{' and no '.join(missing)} (see onegraph.ntm.Controller)"
        )
    return controller


def map_nest(function: Callable[..., Tensor], first: Nest, *others: Nest) -> Nest:
    """Apply a function to the tensors of nests of one shape, and return such a nest."""
    if isinstance(first, Tensor):
        return function(first, *others)
    if first is None:
        return None
    if isinstance(first, dict):
        return {
            name: map_nest(function, value, *(other[name] for other in others))
            for name, value in first.items()
        }
    parts = [map_nest(function, *part) for part in zip(first, *others, strict=True)]
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*parts)
    return type(first)(parts)


def _draw_uniform(hidden_size: int, *parameters: nn.Parameter) -> None:
    """As torch.nn draws the parameters of its recurrent layers."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)
