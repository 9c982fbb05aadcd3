"""A Neural Turing Machine over whole sequences, used like `torch.nn.LSTM`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onegraph.ntm.cell import (
    MemoryInit,
    NTMCell,
    NTMState,
    ReadInit,
    WeightingInit,
    active_steps,
    beside,
)


class NTM(nn.Module):
    """A Neural Turing Machine; its output at each step is linear in controller output and reads.

    >>> model = NTM(input_size=9, output_size=8)
    >>> y, state = model(torch.randn(41, 16, 9))  # y is (41, 16, 8)
    >>> y, state = model(torch.randn(5, 16, 9), state)  # goes on where the last call ended

    One call builds one graph. A state that goes on into the next window carries that graph along;
    cut it with `onegraph.lifetime.detach(state)` before the next backward.

    Args:
        input_size, output_size: D and the width of an output.
        batch_first: inputs, outputs and masks are (B, T, ...) in place of (T, B, ...).

    The others are those of `NTMCell`.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        memory: tuple[int, int] = (128, 20),
        controller: str | nn.Module = "lstm",
        hidden_size: int = 100,
        read_heads: int = 1,
        write_heads: int = 1,
        shift_range: int = 1,
        *,
        memory_init: MemoryInit = "constant",
        weighting_init: WeightingInit = "one-hot",
        read_init: ReadInit = "zero",
        clip: float | None = None,
        tanh: bool = True,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.batch_first = batch_first
        self.cell = NTMCell(
            input_size,
            memory,
            controller,
            hidden_size,
            read_heads,
            write_heads,
            shift_range,
            memory_init=memory_init,
            weighting_init=weighting_init,
            read_init=read_init,
            clip=clip,
            tanh=tanh,
        )
        self.output = nn.Linear(self.cell.output_size, output_size)

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> NTMState:
        """The state before the first step, see `NTMCell.initial_state`."""
        return self.cell.initial_state(batch, device, dtype)

    def forward(
        self,
        x: Tensor,
        state: NTMState | None = None,
        *,
        lengths: Tensor | list[int] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, NTMState]:
        """Steps over a window of T steps.

        A sample that has ended, or that the mask leaves out at a step, is frozen there: its state
        stays as it was, its output is zero, and its input is not looked at, whatever it holds.

        Args:
            x: (T, B, D).
            state: what an earlier call returned; None for the initial state.
            lengths: (B,), how many steps of each sample count in this window.
            mask: (T, B), true where a step counts; in place of lengths.

        Returns:
            The outputs (T, B, output_size), and the state after the window.

        Raises:
            ValueError: a shape does not fit, or both lengths and mask are given.
        """
        if x.dim() != 3 or x.shape[2] != self.input_size:
            order = "batch, time" if self.batch_first else "time, batch"
            raise ValueError(f"x is {tuple(x.shape)}; this NTM takes ({order}, {self.input_size})")
        if mask is not None and mask.shape != x.shape[:2]:
            raise ValueError(f"the mask is {tuple(mask.shape)}; x is {tuple(x.shape)}")
        if self.batch_first:
            x, mask = x.transpose(0, 1), None if mask is None else mask.transpose(0, 1)
        steps, batch = x.shape[:2]
        x, state = self.cell.typed(x), self.cell.checked(state, batch)
        active = active_steps(steps, batch, lengths, mask, x.device)
        if active is not None:
            x = x.masked_fill(~active.unsqueeze(-1), 0)
        if steps:
            outputs, reads, state = self.cell.unroll(x, state, active)
            y = self.output(beside(outputs, reads))
        else:
            y = x.new_zeros(0, batch, self.output_size)
        if active is not None:
            y = y.masked_fill(~active.unsqueeze(-1), 0)
        return (y.transpose(0, 1) if self.batch_first else y), state
