"""Which windows can be one node, and what steps over them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor, nn

from onegraph.ntm.controllers import FeedForwardController, LSTMController
from onegraph.ntm.window import function, kernel, steps
from onegraph.ntm.window.function import Given
from onegraph.ntm.window.steps import Carried, Plan

_LOG = logging.getLogger("onegraph.ntm")
_TYPES = (torch.float32, torch.float64)


def run(plan: Plan, given: Given, active: Tensor | None) -> tuple[Tensor, Tensor, Carried]:
    """Steps over a window by the fastest engine there is; see `function.run`."""
    engine: function.Engine = steps
    if given.memory.device.type == "cpu" and kernel.load():
        engine = kernel
    return function.run(plan, given, active, engine)


def can_be_one(memory: Tensor, tensors: Iterable[Tensor], parameters: Iterable[Tensor]) -> bool:
    """Whether a window of these tensors can be one node.

    It cannot where somebody wants to see each operator (a transform of functions, forward-mode
    differentiation, a compiler), and where types or devices differ, which torch itself may know how
    to bring together.
    """
    if memory.dtype not in _TYPES or _is_transformed():
        return False
    mixed = torch.is_autocast_enabled(memory.device.type)
    if mixed and memory.dtype is not torch.float32:
        return False
    own = {torch.Tensor, nn.Parameter}
    for tensor in tensors:
        if type(tensor) not in own or tensor.device != memory.device:
            return False
        if tensor.dtype is not memory.dtype and not mixed:
            return False
    return all(
        type(each) in own and each.device == memory.device and each.dtype is memory.dtype
        for each in parameters
    )


def _is_transformed() -> bool:
    transforms = getattr(torch._C, "_are_functorch_transforms_active", None)
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or (transforms is not None and transforms())
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_written_out(controller: nn.Module, heads: nn.Module) -> bool:
    """Whether the derivative of these two is written out, and calling them does nothing more."""
    linear = getattr(controller, "linear", None) if type(controller) is not LSTMController else None
    linears = [each for each in (heads, linear) if each is not None]
    written = (
        type(controller) in (LSTMController, FeedForwardController)
        and all(type(each) is nn.Linear and each.bias is not None for each in linears)
        and not any(_is_hooked(each) for each in (controller, *linears))
    )
    if not written:
        _tell_once(type(controller).__name__)
    return written


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _is_hooked(module: nn.Module) -> bool:
    return (
        "forward" in vars(module)
        or any(getattr(module, name) for name in _HOOKS)
        or any(getattr(nn.modules.module, f"_global{name}", None) for name in _HOOKS)
    )


@cache
def _tell_once(name: str) -> None:
    _LOG.warning(
        "%s: no derivative is written out for this controller, or it is hooked or changed; its "
        "windows go step by step, several times as slowly",
        name,
    )
