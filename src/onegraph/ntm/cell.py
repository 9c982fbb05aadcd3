"""One time step of a Neural Turing Machine, and what it starts from.

Equation numbers are those of Graves, Wayne and Danihelka, "Neural Turing Machines" (2014,
arXiv:1410.5401). A step has one order: the controller sees the input and what was read last; all
heads are addressed on the memory M(t-1) that the step finds; the reading heads read it; then the
writing heads change it into M(t). The module holds parameters only: the state goes in and comes
out.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from onegraph.ntm import addressing
from onegraph.ntm.controllers import LSTMController, Nest, make_controller, map_nest
from onegraph.ntm.window import Given, Plan, can_be_one, is_written_out, run

MemoryInit: TypeAlias = Literal["constant", "learned", "random"]
WeightingInit: TypeAlias = Literal["one-hot", "learned"]
ReadInit: TypeAlias = Literal["zero", "learned"]

# Every entry of a constant memory before the first step (Collier and Beel, "Implementing Neural
# Turing Machines", 2018, arXiv:1807.08518).
BLANK = 1e-6
# How much of a learned weighting lies on the first slot before training.
FIRST_SLOT_SHARE = 0.9


class NTMState(NamedTuple):
    """All that a Neural Turing Machine carries from one step to the next; batch first throughout.

    Args:
        memory: (B, N, W).
        weightings: (B, H, N), the reading heads before the writing ones; each sums to 1.
        reads: (B, R, W), what the R reading heads read last.
        controller: the controller's own state, a nest of tensors.
    """

    memory: Tensor
    weightings: Tensor
    reads: Tensor
    controller: Nest


def constant_memory(
    batch: int,
    slots: int,
    width: int,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """A blank memory (batch, slots, width): all its entries are `BLANK`.

    Its rows are alike, so some weighting must tell them apart: see `one_hot_weightings`.
    """
    return torch.full((batch, slots, width), BLANK, device=device, dtype=dtype)


def one_hot_weightings(
    batch: int,
    heads: int,
    slots: int,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Weightings (batch, heads, slots) with every head on the first slot."""
    weightings = torch.zeros(batch, heads, slots, device=device, dtype=dtype)
    weightings[..., 0] = 1
    return weightings


class NTMCell(nn.Module):
    """A Neural Turing Machine for one time step, used like `torch.nn.LSTMCell`.

    >>> cell = NTMCell(8)
    >>> state = cell.initial_state(batch=4)
    >>> output, state = cell(torch.randn(4, 8), state)

    Args:
        input_size: D, the width of an input.
        memory: (N, W), how many slots of how many numbers.
        controller: "lstm", "gru", "feedforward", or a module that follows `Controller`.
        hidden_size: the size of a named controller.
        read_heads, write_heads: how many of each, at least one.
        shift_range: a head can move this many slots at a step, either way.
        memory_init: "constant" (all `BLANK`), "learned", or "random" (drawn when the cell is made
            and kept in its `state_dict`, so that a run can be repeated).
        weighting_init: "one-hot" (every head on the first slot) or "learned". There is no uniform
            one: over a constant memory it would keep all rows alike for ever.
        read_init: "zero" or "learned".
        clip: the controller's head numbers are clamped to ±clip; None, the default, leaves them.
        tanh: whether keys and what is added are squashed to (-1, 1), as is the default.
    """

    initial_memory: Tensor | None

    def __init__(
        self,
        input_size: int,
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
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.slots, self.width = memory
        self.read_heads, self.write_heads = read_heads, write_heads
        self.shift_range = shift_range
        self.clip, self.tanh = clip, tanh
        _require_at_least(1, slots=self.slots, width=self.width)
        _require_at_least(1, read_heads=read_heads, write_heads=write_heads)
        _require_at_least(0, shift_range=shift_range)
        _require_at_least(1, hidden_size=hidden_size)
        if clip is not None and not 0 < clip < math.inf:
            raise ValueError(f"clip is {clip}; it must be positive and finite, or None")
        self.controller = make_controller(
            controller, input_size + read_heads * self.width, hidden_size
        )
        controller_size = int(self.controller.output_size)  # type: ignore[arg-type]
        self.output_size = controller_size + read_heads * self.width
        self.heads = nn.Linear(
            controller_size,
            addressing.count_head_outputs(
                read_heads + write_heads, write_heads, self.width, shift_range
            ),
        )
        self._make_initial(memory_init, weighting_init, read_init)

    def _make_initial(
        self, memory_init: MemoryInit, weighting_init: WeightingInit, read_init: ReadInit
    ) -> None:
        """Make what the initial state is read from; an attribute is None where it is constant."""
        heads = self.read_heads + self.write_heads
        _require_one_of(("constant", "learned", "random"), memory_init=memory_init)
        _require_one_of(("one-hot", "learned"), weighting_init=weighting_init)
        _require_one_of(("zero", "learned"), read_init=read_init)
        self.memory_init = memory_init
        if memory_init == "learned":
            self.initial_memory = nn.Parameter(self._draw_memory())
        else:
            drawn = self._draw_memory() if memory_init == "random" else None
            self.register_buffer("initial_memory", drawn)
        self.initial_weightings: nn.Parameter | None = None
        if weighting_init == "learned":
            logits = torch.zeros(heads, self.slots)
            others = max(self.slots - 1, 1)
            logits[:, 0] = math.log(others * FIRST_SLOT_SHARE / (1 - FIRST_SLOT_SHARE))
            self.initial_weightings = nn.Parameter(logits)
        self.initial_reads: nn.Parameter | None = None
        if read_init == "learned":
            self.initial_reads = nn.Parameter(torch.zeros(self.read_heads, self.width))

    def _draw_memory(self) -> Tensor:
        return torch.randn(self.slots, self.width) / math.sqrt(self.width)

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> NTMState:
        """The state before the first step.

        Args:
            batch: how many samples.
            device: by default where the parameters are.
            dtype: by default the parameters' own; where that is narrower than float32, the memory,
                the weightings and the reads are float32 all the same.
        """
        like = self.heads.weight
        device = like.device if device is None else torch.device(device)
        inner_dtype = like.dtype if dtype is None else dtype
        dtype = torch.promote_types(like.dtype, torch.float32) if dtype is None else dtype
        heads = self.read_heads + self.write_heads
        if self.initial_memory is None:
            memory = constant_memory(batch, self.slots, self.width, device, dtype)
        else:
            memory = self.initial_memory.to(device, dtype).expand(batch, -1, -1)
        if self.initial_weightings is None:
            weightings = one_hot_weightings(batch, heads, self.slots, device, dtype)
        else:
            logits = self.initial_weightings.to(device, dtype)
            weightings = logits.softmax(-1).expand(batch, -1, -1)
        if self.initial_reads is None:
            reads = torch.zeros(batch, self.read_heads, self.width, device=device, dtype=dtype)
        else:
            reads = self.initial_reads.to(device, dtype).expand(batch, -1, -1)
        inner = self.controller.initial_state(batch, device, inner_dtype)  # type: ignore[operator]
        return NTMState(memory, weightings, reads, inner)

    def forward(self, x: Tensor, state: NTMState | None = None) -> tuple[Tensor, NTMState]:
        """One step.

        Args:
            x: (B, D).
            state: as `initial_state` or an earlier step returned it; None for the initial one.

        Returns:
            The controller's output beside what was read, (B, `output_size`), and the next state.
        """
        if x.dim() != 2 or x.shape[1] != self.input_size:
            raise ValueError(f"x is {tuple(x.shape)}; this cell takes (batch, {self.input_size})")
        x, state = self.typed(x), self.checked(state, x.shape[0])
        output, state = self.step(x, state)
        return beside(output, state.reads), state

    def checked(self, state: NTMState | None, batch: int) -> NTMState:
        """The state itself if it fits a batch of this cell, the initial one for None.

        Raises:
            ValueError: it is of another batch or another memory; both shapes are named.
        """
        if state is None:
            return self.initial_state(batch)
        heads = self.read_heads + self.write_heads
        for name, tensor, expected in (
            ("memory", state[0], (batch, self.slots, self.width)),
            ("weightings", state[1], (batch, heads, self.slots)),
            ("reads", state[2], (batch, self.read_heads, self.width)),
        ):
            if tuple(tensor.shape) != expected:
                raise ValueError(
                    f"the state's {name} is {tuple(tensor.shape)}; this call needs {expected}"
                )
        return state

    def typed(self, x: Tensor) -> Tensor:
        """An input of the parameters' type: bits as whole numbers or truths are welcome.

        Raises:
            ValueError: it is of another floating-point type, and autocast is off.
        """
        wanted = self.heads.weight.dtype
        if not x.is_floating_point():
            return x.to(wanted)
        if x.dtype is not wanted and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x is of {x.dtype}; this cell's parameters are of {wanted}")
        return x

    def step(self, x: Tensor, state: NTMState) -> tuple[Tensor, NTMState]:
        """One step, unchecked: the controller's output (B, its size) and the next state."""
        memory, weightings, reads, inner = state
        output, inner = self.controller(beside(x, reads), inner)
        raw = self.heads(output)
        with addressing.exactly(memory.device):
            memory, weightings, reads = addressing.advance(
                memory, weightings, raw, self.read_heads, clip=self.clip, tanh=self.tanh
            )
        return output, NTMState(memory, weightings, reads, inner)

    def unroll(
        self, inputs: Tensor, state: NTMState, active: Tensor | None = None
    ) -> tuple[Tensor, Tensor, NTMState]:
        """Steps over a window; everything that was computed belongs to this window's graph.

        Args:
            inputs: (T, B, D) with T ≥ 1.
            state: what the window begins with.
            active: (T, B), False where a sample's state must not change; None: all active.

        Returns:
            The controller's outputs (T, B, its size), what was read (T, B, R, W), and the state
            after the window. Where a sample is not active the first two hold no meaning.
        """
        plan = self._plan(inputs, state)
        if plan is not None:
            return self._unroll_as_one(plan, inputs, state, active)
        # One look at the mask a window: steps at which all samples are active cost nothing more.
        whole = [True] * len(inputs) if active is None else active.all(1).tolist()
        outputs, reads = [], []
        for t, x in enumerate(inputs.unbind(0)):
            output, after = self.step(x, state)
            if active is not None and not whole[t]:
                after = keep_inactive(active[t], after, state)
            state = after
            outputs.append(output)
            reads.append(state.reads)
        return torch.stack(outputs), torch.stack(reads), state

    def _plan(self, inputs: Tensor, state: NTMState) -> Plan | None:
        """How this window can be one node of the graph; None where it must go step by step."""
        if type(self).step is not NTMCell.step or not is_written_out(self.controller, self.heads):
            return None
        parameters = (*self.controller.parameters(), *self.heads.parameters())
        if not can_be_one(state.memory, (inputs, *state[:3], *state.controller), parameters):
            return None
        lstm = type(self.controller) is LSTMController
        return Plan(lstm, self.read_heads, self.write_heads, self.clip, self.tanh)

    def _unroll_as_one(
        self, plan: Plan, inputs: Tensor, state: NTMState, active: Tensor | None
    ) -> tuple[Tensor, Tensor, NTMState]:
        controller: Any = self.controller
        linear = controller if plan.lstm else controller.linear
        hidden, cell = state.controller if plan.lstm else (None, None)
        given = Given(
            inputs.to(state.memory.dtype),
            *(linear.weight, linear.bias, self.heads.weight, self.heads.bias),
            *state[:3],
            hidden,
            cell,
        )
        outputs, reads, after = run(plan, given, active)
        inner = (after.hidden, after.cell) if plan.lstm else ()
        return outputs, reads, NTMState(*after[:3], inner)

    def extra_repr(self) -> str:
        """What `repr` says beside the submodules."""
        return (
            f"{self.input_size}, memory=({self.slots}, {self.width}), "
            f"read_heads={self.read_heads}, write_heads={self.write_heads}, "
            f"shift_range={self.shift_range}, memory_init={self.memory_init!r}"
        )


def beside(x: Tensor, reads: Tensor) -> Tensor:
    """Join x (..., D) and reads (..., R, W) to (..., D + R · W), in the type of x."""
    reads = reads.flatten(-2)
    return torch.cat((x, reads if reads.dtype == x.dtype else reads.to(x.dtype)), -1)


def keep_inactive(active: Tensor, after: NTMState, before: NTMState) -> NTMState:
    """The state after a step for the samples that are active (B,), and before it for the rest."""

    def choose(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)

    kept: NTMState = map_nest(choose, after, before)
    return kept


def active_steps(
    steps: int,
    batch: int,
    lengths: Tensor | list[int] | None,
    mask: Tensor | None,
    device: torch.device,
) -> Tensor | None:
    """Which steps count, (steps, batch) of bool; None when all do.

    Args:
        lengths: (batch,), how many steps of each sample count.
        mask: (steps, batch), in place of lengths.

    Raises:
        ValueError: both are given, or the lengths do not fit.
    """
    if mask is not None:
        if lengths is not None:
            raise ValueError("give lengths or a mask, not both")
        return mask.to(device, torch.bool)
    if lengths is None:
        return None
    counts = torch.as_tensor(lengths)
    if tuple(counts.shape) != (batch,):
        raise ValueError(f"lengths has {tuple(counts.shape)}; x has a batch of {batch}")
    if batch and not 0 <= int(counts.min()) <= int(counts.max()) <= steps:
        raise ValueError(f"lengths must lie between 0 and the {steps} steps of x: {lengths}")
    return torch.arange(steps, device=device).unsqueeze(1) < counts.to(device)


def _require_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")


def _require_one_of(known: tuple[str, ...], **values: str) -> None:
    for name, value in values.items():
        if value not in known:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
