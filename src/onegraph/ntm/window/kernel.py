"""The engine that steps in C++, where it has been built; see `build`."""

from __future__ import annotations

import logging
import os
from functools import cache

import torch
from torch import Tensor

from onegraph.ntm.window import build
from onegraph.ntm.window.steps import Carried, Plan, Weights

_LOG = logging.getLogger("onegraph.ntm")


@cache
def load() -> bool:
    """Whether the kernel is there; looked for once in the life of a process, built never."""
    if os.environ.get("ONEGRAPH_KERNEL") == "0":
        return False
    try:
        path = build.goal()
        if path.exists():
            torch.ops.load_library(str(path))
            return True
    except (OSError, RuntimeError) as error:
        _LOG.warning("the kernel of the NTM is left aside, it cannot be loaded: %s", error)
        return False
    _LOG.warning(
        "the kernel of the NTM is not built; windows are stepped in Python, about ten times as "
        "slowly. `onegraph ntm build` builds it, once, with a C++ compiler"
    )
    return False


def forward(
    plan: Plan,
    sums: Tensor,
    active: Tensor | None,
    weights: Weights,
    state: Carried,
    keep: bool,
) -> tuple[Tensor, Tensor, Carried, list[Tensor | None]]:
    """See `steps.forward`; the sums are written over."""
    sums = sums.contiguous()
    outputs, reads, memory, weightings, read, hidden, cell, *tape = torch.ops.onegraph_ntm.forward(
        sums, active, *weights, *state, plan.write_heads, plan.clip, plan.tanh, keep
    )
    inner = (hidden, cell) if plan.lstm else (None, None)
    # The sums are the gates by now; the first step found its weightings and its cell in the state.
    kept = [state.weightings, state.cell, sums, *tape] if keep else []
    return outputs, reads, Carried(memory, weightings, read, *inner), kept


def backward(
    plan: Plan,
    tape: list[Tensor | None],
    active: Tensor | None,
    weights: Weights,
    d_outputs: Tensor | None,
    d_reads: Tensor | None,
    d_state: Carried,
) -> tuple[Tensor, Tensor, Carried]:
    """See `steps.backward`."""
    weightings, cell, *kept = tape
    d_sums, d_raw, *state = torch.ops.onegraph_ntm.backward(
        kept, active, *weights[:2], weightings, cell,
        d_outputs, d_reads, *d_state, plan.write_heads, plan.clip, plan.tanh,
    )  # fmt: skip
    if not plan.lstm:
        state[3:] = None, None
    return d_sums, d_raw, Carried(*state)
