"""A window of a Neural Turing Machine in plain torch: the steps, and the way back through them.

The functions of `onegraph.ntm.addressing` go forward, one time step after the other, and leave
behind what the way back needs; their derivatives are written out here, so that a window is one node
of the graph in place of seventy a step. `kernel.cpp` does the same in one call a direction.

Sizes: T steps, B samples, N slots of W numbers, H heads of which R read, C numbers of the
controller, P numbers of the heads. A derivative is named ``d_`` and what it is of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from onegraph.ntm import addressing
from onegraph.ntm.addressing import COSINE_EPSILON, LOG_EPSILON, HeadParams

F = TypeVar("F", bound=Callable[..., Any])

# Where softplus is taken for the identity, as in torch.
SOFTPLUS_THRESHOLD = 20.0


class Plan(NamedTuple):
    """What the steps of a window have in common.

    Args:
        lstm: whether the controller is a long short-term memory; otherwise one layer of tanh.
        read_heads, write_heads: how many of each.
        clip, tanh: see `addressing.activate`.
    """

    lstm: bool
    read_heads: int
    write_heads: int
    clip: float | None
    tanh: bool


class Weights(NamedTuple):
    """The parameters that every step uses.

    Args:
        recurrent: (G, R · W + C), of what was read and of the hidden state; without the hidden
            state, and with G = C instead of 4 C, where the controller is feed-forward.
        heads: (P, C).
        bias: (P,), of the heads.
    """

    recurrent: Tensor
    heads: Tensor
    bias: Tensor


class Carried(NamedTuple):
    """The state, or its derivative: what one step hands to the next.

    Args:
        memory: (B, N, W).
        weightings: (B, H, N).
        reads: (B, R, W).
        hidden, cell: (B, C); None where the controller is feed-forward.
    """

    memory: Tensor
    weightings: Tensor
    reads: Tensor
    hidden: Tensor | None
    cell: Tensor | None


class Step(NamedTuple):
    """What a step leaves behind for the way back.

    Args:
        memory, weightings, cell: as the step found them.
        params: what the heads were told.
        raw: (B, P), what the controller emitted; None where nothing is clipped.
        found, shifted, after: (B, H, N), the weightings by content, after the shift, and sharpened.
        gates: (B, G), the controller's gates, its candidate, or its output, activated.
        squashed: (B, C), the tanh of the new cell; None where the controller is feed-forward.
    """

    memory: Tensor
    weightings: Tensor
    cell: Tensor | None
    params: HeadParams
    raw: Tensor | None
    found: Tensor
    shifted: Tensor
    after: Tensor
    gates: Tensor
    squashed: Tensor | None

    def flat(self) -> list[Tensor | None]:
        """Its tensors, those of the params among the others."""
        return [*self[:3], *self.params, *self[4:]]

    @staticmethod
    def from_flat(tensors: list[Tensor | None]) -> Step:
        """The step that `flat` took apart."""
        step: Any = Step
        return cast(Step, step(*tensors[:3], HeadParams(*tensors[3:10]), *tensors[10:]))  # type: ignore[arg-type]


# How many tensors a step leaves.
TENSORS = len(Step._fields) - 1 + len(HeadParams._fields)


def forward(
    plan: Plan,
    sums: Tensor,
    active: Tensor | None,
    weights: Weights,
    state: Carried,
    keep: bool,
) -> tuple[Tensor, Tensor, Carried, list[Tensor | None]]:
    """Step over a window.

    Args:
        sums: (T, B, G), what the inputs and the bias add to the controller's sums.
        active: (T, B) of bool, false where a sample's state stays; None: all true.
        state: what the window begins with.
        keep: whether there is a way back.

    Returns:
        The controller's outputs (T, B, C), what was read (T, B, R, W), the state after the window,
        and the steps, flat; none if they were not to be kept.
    """
    whole = _whole(active, len(sums))
    advance = _compiled(forward_step) if _worth_compiling(sums) else forward_step
    outputs, reads = [], []
    tape: list[Tensor | None] = []
    for t, now in enumerate(sums.unbind(0)):
        output, after, step = advance(plan, now, weights, state)
        if active is not None and not whole[t]:
            chosen = active[t]
            after = _choose(chosen, after, state)
            # What stands for the hidden state of a frozen sample is that state.
            output = output if after.hidden is None else after.hidden
        state = after
        outputs.append(output)
        reads.append(state.reads)
        if keep:
            tape += step.flat()
    return torch.stack(outputs), torch.stack(reads), state, tape


def backward(
    plan: Plan,
    tape: list[Tensor | None],
    active: Tensor | None,
    weights: Weights,
    d_outputs: Tensor | None,
    d_reads: Tensor | None,
    d_state: Carried,
) -> tuple[Tensor, Tensor, Carried]:
    """Go back through a window.

    Args:
        tape: what `forward` kept.
        d_outputs, d_reads: derivatives of what `forward` returned; None for zeros.
        d_state: that of the state after the window.

    Returns:
        The derivatives of the sums (T, B, G), of the heads' numbers (T, B, P), and of the state
        before the window.
    """
    steps = len(tape) // TENSORS
    back = _compiled(backward_step) if _worth_compiling(weights.bias) else backward_step
    whole = _whole(active, steps)
    sums, raws = [], []
    for t in reversed(range(steps)):
        step = Step.from_flat(tape[t * TENSORS : (t + 1) * TENSORS])
        frozen = None
        if d_reads is not None:
            d_state = d_state._replace(reads=d_state.reads + d_reads[t])
        if active is not None and not whole[t]:
            zeros = _zeros(d_state)
            frozen = _choose(active[t], zeros, d_state)
            d_state = _choose(active[t], d_state, zeros)
        d_output = None if d_outputs is None else d_outputs[t]
        if frozen is not None and d_output is not None:
            d_output = d_output.masked_fill(~active[t].unsqueeze(-1), 0)  # type: ignore[index]
        d_sums, d_raw, d_state = back(plan, step, weights, d_output, d_state)
        if frozen is not None:
            d_state = _add(d_state, frozen)
        sums.append(d_sums)
        raws.append(d_raw)
    sums.reverse()
    raws.reverse()
    return torch.stack(sums), torch.stack(raws), d_state


def forward_step(
    plan: Plan, sums: Tensor, weights: Weights, state: Carried
) -> tuple[Tensor, Carried, Step]:
    """One step: the controller's output, the state after it, and what it leaves behind."""
    memory, weightings, reads, hidden, cell = state
    seen = reads.flatten(1)
    squashed = None
    if plan.lstm:
        assert hidden is not None
        assert cell is not None
        size = hidden.shape[1]
        total = torch.addmm(sums, torch.cat((seen, hidden), -1), weights.recurrent.t())
        gates = torch.cat((total[:, : 3 * size].sigmoid(), total[:, 3 * size :].tanh()), -1)
        take, keep, emit, candidate = gates.split(size, -1)
        after_cell = torch.addcmul(keep * cell, take, candidate)
        squashed = after_cell.tanh()
        output = emit * squashed
    else:
        gates = output = torch.addmm(sums, seen, weights.recurrent.t()).tanh()
        after_cell = None
    raw = torch.addmm(weights.bias, output, weights.heads.t())
    params = addressing.activate(
        raw,
        plan.read_heads + plan.write_heads,
        plan.write_heads,
        memory.shape[2],
        clip=plan.clip,
        tanh=plan.tanh,
    )
    found = addressing.content(memory, params.key, params.strength)
    shifted = addressing.shift(addressing.interpolate(weightings, found, params.gate), params.shift)
    after = addressing.sharpen(shifted, params.sharpen)
    reading, writing = after.split((plan.read_heads, plan.write_heads), 1)
    carried = Carried(
        addressing.write(memory, writing, params.erase, params.add),
        after,
        addressing.read(memory, reading),
        output if plan.lstm else None,
        after_cell,
    )
    kept = None if plan.clip is None else raw
    step = Step(memory, weightings, cell, params, kept, found, shifted, after, gates, squashed)
    return output, carried, step


def backward_step(
    plan: Plan, step: Step, weights: Weights, d_output: Tensor | None, d_state: Carried
) -> tuple[Tensor, Tensor, Carried]:
    """Back through one step: derivatives of its sums, its heads' numbers and the state before."""
    memory, params = step.memory, step.params
    reading, writing = step.after.split((plan.read_heads, plan.write_heads), 1)
    d_memory, d_writing, d_erase, d_add = _write_back(memory, writing, params, d_state.memory)
    d_reading = torch.bmm(d_state.reads, memory.transpose(1, 2))
    d_memory = torch.baddbmm(d_memory, reading.transpose(1, 2), d_state.reads)
    d_after = d_state.weightings + torch.cat((d_reading, d_writing), 1)

    # Equation 9, the softmax of γ · log(w + ε).
    logs = (step.shifted + LOG_EPSILON).log()
    d_scaled = _softmax_back(step.after, d_after)
    d_sharpen = (d_scaled * logs).sum(-1, keepdim=True)
    d_shifted = params.sharpen * d_scaled / (step.shifted + LOG_EPSILON)
    # Equation 8.
    gated = addressing.interpolate(step.weightings, step.found, params.gate)
    d_gated = addressing.shift(d_shifted, params.shift.flip(-1))
    d_taps = _taps_back(gated, d_shifted, params.shift.shape[-1])
    # Equation 7.
    d_gate = (d_gated * (step.found - step.weightings)).sum(-1, keepdim=True)
    d_found = params.gate * d_gated
    d_before = d_gated - d_found
    # Equations 5 and 6.
    d_memory, d_key, d_strength = _content_back(
        memory, params, _softmax_back(step.found, d_found), d_memory
    )

    d_taps = _softmax_back(params.shift, d_taps)
    d_positive = torch.cat(
        (d_strength * _softplus_slope(params.strength),
         d_sharpen * _softplus_slope(params.sharpen - 1)), -1
    )  # fmt: skip
    d_gate = d_gate * params.gate * (1 - params.gate)
    d_erase = d_erase * params.erase * (1 - params.erase)
    if plan.tanh:
        d_key, d_add = d_key * (1 - params.key**2), d_add * (1 - params.add**2)
    d_raw = torch.cat(
        (torch.cat((d_key, d_positive, d_gate, d_taps), -1).flatten(1),
         torch.cat((d_erase, d_add), -1).flatten(1)), -1
    )  # fmt: skip
    if step.raw is not None:
        assert plan.clip is not None
        d_raw = d_raw * (step.raw.abs() <= plan.clip)
    d_out = d_raw @ weights.heads
    if d_output is not None:
        d_out = d_out + d_output

    if plan.lstm:
        assert step.squashed is not None
        assert step.cell is not None
        assert d_state.hidden is not None
        assert d_state.cell is not None
        d_out = d_out + d_state.hidden
        size = d_out.shape[1]
        take, keep, emit, candidate = step.gates.split(size, -1)
        d_cell = d_state.cell + d_out * emit * (1 - step.squashed**2)
        gates = step.gates[:, : 3 * size]
        d_gates = torch.cat((d_cell * candidate, d_cell * step.cell, d_out * step.squashed), -1)
        d_sums = torch.cat((d_gates * gates * (1 - gates), d_cell * take * (1 - candidate**2)), -1)
        d_cell = d_cell * keep
    else:
        d_sums = d_out * (1 - step.gates**2)
        d_cell = None
    d_seen = d_sums @ weights.recurrent
    read = d_state.reads.shape[1] * memory.shape[2]
    d_reads, d_hidden = d_seen.split((read, d_seen.shape[1] - read), -1)
    before = Carried(
        d_memory,
        d_before,
        d_reads.view(d_state.reads.shape),
        d_hidden if plan.lstm else None,
        d_cell,
    )
    return d_sums, d_raw, before


def _write_back(
    memory: Tensor, writing: Tensor, params: HeadParams, d_memory: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Derivatives of the memory before a write, of its weightings, of erase and of add."""
    columns = writing.transpose(1, 2)
    one = memory.new_ones(())
    factors = [
        torch.baddbmm(one, column, row, alpha=-1)
        for column, row in zip(columns.split(1, -1), params.erase.split(1, 1), strict=True)
    ]
    d_writing = torch.bmm(params.add, d_memory.transpose(1, 2))
    d_add = torch.bmm(writing, d_memory)
    d_erase = []
    d_extra = []
    kept = d_memory
    # The derivative to a factor is the product of all others: no dividing, a factor may be 0.
    behind = [torch.ones_like(memory)]
    for factor in factors[:0:-1]:
        behind.append(behind[-1] * factor)
    for head, factor in enumerate(factors):
        d_factor = kept * memory * behind[-1 - head]
        d_erase.append(-torch.bmm(writing[:, head : head + 1], d_factor))
        d_extra.append(torch.bmm(params.erase[:, head : head + 1], d_factor.transpose(1, 2)))
        kept = kept * factor
    return kept, d_writing - torch.cat(d_extra, 1), torch.cat(d_erase, 1), d_add


def _content_back(
    memory: Tensor, params: HeadParams, d_scores: Tensor, d_memory: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives of the memory (added to what is given), of the keys and of the strengths."""
    row_scale = ((memory * memory).sum(-1) + COSINE_EPSILON).rsqrt()
    key_scale = ((params.key * params.key).sum(-1, keepdim=True) + COSINE_EPSILON).rsqrt()
    key = params.key * key_scale
    d_found = d_scores * row_scale.unsqueeze(1)
    d_asked = torch.bmm(d_found, memory)
    along = (d_asked * key).sum(-1, keepdim=True)
    d_key = params.strength * key_scale * (d_asked - along * key)
    asked = params.strength * key
    d_memory = torch.baddbmm(d_memory, d_found.transpose(1, 2), asked)
    shrink = (d_found * torch.bmm(asked, memory.transpose(1, 2))).sum(1) * row_scale**2
    d_memory = torch.addcmul(d_memory, shrink.unsqueeze(-1), memory, value=-1)
    return d_memory, d_key, along


def _taps_back(gated: Tensor, d_shifted: Tensor, size: int) -> Tensor:
    """The derivative of the shift's taps (B, H, S)."""
    reach = size // 2
    batch, heads, slots = gated.shape
    places = torch.arange(-reach, reach + 1, device=gated.device).unsqueeze(1)
    places = (places + torch.arange(slots, device=gated.device)) % slots
    windows = gated[..., places].view(batch * heads, size, slots)
    d_taps = torch.bmm(windows, d_shifted.reshape(batch * heads, slots, 1))
    return d_taps.view(batch, heads, size)


def _softmax_back(result: Tensor, derivative: Tensor) -> Tensor:
    return result * (derivative - (result * derivative).sum(-1, keepdim=True))


def _softplus_slope(result: Tensor) -> Tensor:
    """The derivative of softplus, from its result."""
    slope = -torch.expm1(-result)
    return slope.masked_fill(result > SOFTPLUS_THRESHOLD, 1)


def _whole(active: Tensor | None, steps: int) -> list[bool]:
    """For each step whether all samples are active; one look at the mask a window."""
    whole: list[bool] = [True] * steps if active is None else active.all(1).tolist()
    return whole


def _choose(chosen: Tensor, yes: Carried, no: Carried) -> Carried:
    """The one for the chosen samples (B,), and the other for the rest."""

    def each(one: Tensor | None, other: Tensor | None) -> Tensor | None:
        if one is None or other is None:
            return None
        return torch.where(chosen.view(-1, *[1] * (one.dim() - 1)), one, other)

    return Carried(*map(each, yes, no))  # type: ignore[arg-type]


def _zeros(state: Carried) -> Carried:
    return Carried(*(None if each is None else torch.zeros_like(each) for each in state))  # type: ignore[arg-type]


def _add(one: Carried, other: Carried) -> Carried:
    pairs = zip(one, other, strict=True)
    return Carried(*(None if a is None or b is None else a + b for a, b in pairs))  # type: ignore[arg-type]


def _worth_compiling(tensor: Tensor) -> bool:
    """On an accelerator, where a step is bound by the number of its operators, and only where no
    operator is to have a node of its own. Not tried: no CUDA device was at hand."""
    return tensor.is_cuda and not torch.is_grad_enabled()


@cache
def _compiled(function: F) -> F:
    return cast(F, torch.compile(function, dynamic=False))
