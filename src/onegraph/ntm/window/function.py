"""A window as one node of the graph: what goes in, what comes out, and its derivative."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from onegraph.ntm.addressing import exactly
from onegraph.ntm.window import steps
from onegraph.ntm.window.steps import Carried, Plan, Weights


class Engine(Protocol):
    """What steps over a window and goes back through it: `steps`, or the kernel."""

    def forward(
        self,
        plan: Plan,
        sums: Tensor,
        active: Tensor | None,
        weights: Weights,
        state: Carried,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Carried, list[Tensor | None]]:
        """See `steps.forward`."""

    def backward(
        self,
        plan: Plan,
        tape: list[Tensor | None],
        active: Tensor | None,
        weights: Weights,
        d_outputs: Tensor | None,
        d_reads: Tensor | None,
        d_state: Carried,
    ) -> tuple[Tensor, Tensor, Carried]:
        """See `steps.backward`."""


class Given(NamedTuple):
    """All tensors that a window may be differentiated by.

    Args:
        inputs: (T, B, D).
        weight: (G, D + R · W + C), of the controller, as `LSTMController` has it; without the last
            C columns where the controller is feed-forward.
        bias: (G,).
        heads, heads_bias: (P, C) and (P,).
        memory, weightings, reads, hidden, cell: see `Carried`.
    """

    inputs: Tensor
    weight: Tensor
    bias: Tensor
    heads: Tensor
    heads_bias: Tensor
    memory: Tensor
    weightings: Tensor
    reads: Tensor
    hidden: Tensor | None
    cell: Tensor | None

    @property
    def state(self) -> Carried:
        """What the window begins with."""
        return Carried(self.memory, self.weightings, self.reads, self.hidden, self.cell)


def run(
    plan: Plan, given: Given, active: Tensor | None, engine: Engine
) -> tuple[Tensor, Tensor, Carried]:
    """Steps over a window, as one node if anything of it is to be differentiated.

    Args:
        active: (T, B) of bool; None: all true.

    Returns:
        The controller's outputs (T, B, C), what was read (T, B, R, W), and the state after it.
    """
    differentiated = any(each is not None and each.requires_grad for each in given)
    with exactly(given.inputs.device):
        if torch.is_grad_enabled() and differentiated:
            outputs, reads, *state = Window.apply(plan, active, engine, *given)  # type: ignore[no-untyped-call]
            return outputs, reads, Carried(*state)
        with torch.no_grad():
            outputs, reads, carried, _ = _forward(plan, given, active, engine, keep=False)
        return outputs, reads, carried


def _forward(
    plan: Plan, given: Given, active: Tensor | None, engine: Engine, keep: bool
) -> tuple[Tensor, Tensor, Carried, list[Tensor | None]]:
    # What the inputs add to the sums of all steps is one product.
    width = given.inputs.shape[2]
    sums = torch.nn.functional.linear(given.inputs, given.weight[:, :width], given.bias)
    weights = Weights(given.weight[:, width:], given.heads, given.heads_bias)
    return engine.forward(plan, sums, active, weights, given.state, keep)


class Window(torch.autograd.Function):
    """The window's node. Its backward frees the tape, as that of any node does."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, plan: Plan, active: Tensor | None, engine: Engine, *given: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Step, and save the tape."""
        found = Given(*given)  # type: ignore[arg-type]
        outputs, reads, state, tape = _forward(plan, found, active, engine, keep=True)
        context = cast(Any, ctx)
        context.set_materialize_grads(False)
        context.plan, context.engine = plan, engine
        context.save_for_backward(active, *given, outputs, reads, *tape)
        return outputs, reads, *state

    @staticmethod
    def backward(ctx: Any, *derivatives: Tensor | None) -> tuple[Tensor | None, ...]:
        """The derivatives of what was given; where they are wanted with a graph of their own, the
        steps are taken once more, each operator with its node.
        """
        active, *saved = ctx.saved_tensors
        given, (outputs, reads) = (
            Given(*saved[: len(Given._fields)]),
            saved[len(Given._fields) :][:2],
        )
        needed = ctx.needs_input_grad[3:]
        found: Iterable[Tensor | None]
        # Backward may be called where autocast is on; it is off where the forward was.
        with exactly(outputs.device):
            if torch.is_grad_enabled():
                found = _differentiable(ctx.plan, given, active, derivatives, needed)
            else:
                tape = saved[len(Given._fields) + 2 :]
                found = _backward(ctx, given, active, outputs, reads, tape, derivatives, needed)
        return None, None, None, *found


def _backward(
    ctx: Any,
    given: Given,
    active: Tensor | None,
    outputs: Tensor,
    reads: Tensor,
    tape: list[Tensor | None],
    derivatives: tuple[Tensor | None, ...],
    needed: tuple[bool, ...],
) -> Given:
    """Back through the steps, and from the sums of all steps to the parameters in one product."""
    d_outputs, d_reads, *rest = derivatives
    width = given.inputs.shape[2]
    d_state = Carried(
        *(
            None if state is None else torch.zeros_like(state) if found is None else found
            for state, found in zip(given.state, rest, strict=True)
        )  # type: ignore[arg-type]
    )
    weights = Weights(given.weight[:, width:], given.heads, given.heads_bias)
    d_sums, d_raw, d_before = ctx.engine.backward(
        ctx.plan, tape, active, weights, d_outputs, d_reads, d_state
    )
    wanted = Given(*needed)  # type: ignore[arg-type]
    flat_sums, flat_raw = d_sums.flatten(0, 1), d_raw.flatten(0, 1)
    d_weight = None
    if wanted.weight:
        seen = [given.inputs, torch.cat((given.reads.unsqueeze(0), reads[:-1])).flatten(2)]
        if given.hidden is not None:
            seen.append(torch.cat((given.hidden.unsqueeze(0), outputs[:-1])))
        d_weight = flat_sums.t() @ torch.cat(seen, -1).flatten(0, 1)
    return Given(
        d_sums @ given.weight[:, :width] if wanted.inputs else None,  # type: ignore[arg-type]
        d_weight,  # type: ignore[arg-type]
        flat_sums.sum(0) if wanted.bias else None,  # type: ignore[arg-type]
        flat_raw.t() @ outputs.flatten(0, 1) if wanted.heads else None,  # type: ignore[arg-type]
        flat_raw.sum(0) if wanted.heads_bias else None,  # type: ignore[arg-type]
        *(found if want else None for found, want in zip(d_before, needed[5:], strict=True)),  # type: ignore[arg-type]
    )


def _differentiable(
    plan: Plan,
    given: Given,
    active: Tensor | None,
    derivatives: tuple[Tensor | None, ...],
    needed: tuple[bool, ...],
) -> list[Tensor | None]:
    """The same derivatives by torch's own autograd, and so with derivatives of their own."""
    outputs, reads, state, _ = _forward(plan, given, active, steps, keep=False)
    pairs = [
        (result, derivative)
        for result, derivative in zip((outputs, reads, *state), derivatives, strict=True)
        if derivative is not None and result is not None and result.requires_grad
    ]
    wanted = [each for each, want in zip(given, needed, strict=True) if want and each is not None]
    results, weights = zip(*pairs, strict=True)
    found = iter(
        torch.autograd.grad(results, wanted, weights, create_graph=True, allow_unused=True)
    )
    return [next(found) if want else None for want in needed]
