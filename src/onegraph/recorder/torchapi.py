"""Every private name of torch that onegraph touches, in one place, with a probe.

A torch that lacks one of them is not an error: the probe says what is then "unknown".
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.overrides
import torch.utils._device
from torch.autograd import function as function_module
from torch.autograd import graph as engine_module

sequence_number: Callable[[], int] | None = getattr(torch.autograd, "_get_sequence_nr", None)

FREED_MARKS = ("second time", "already been freed", "have been freed")
CHANGED_MARK = "modified by an inplace operation"

# The stack of function modes, by the C functions: a debugger has nothing to step into.
push: Callable[[Any], Any] = getattr(torch._C, "_push_on_torch_function_stack", id)
pop: Callable[[], Any] = getattr(torch._C, "_pop_torch_function_stack", int)
depth: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", int)
mode_at: Callable[[int], Any] = getattr(torch._C, "_get_function_stack_at", int)
# The class between a custom Function's own `apply` and C++, and what that finds there.
function_base: Any = getattr(function_module, "_SingleLevelFunction", None)
base_apply: Any = (
    vars(torch._C._FunctionBase).get("apply")
    if function_base is not None and "apply" not in vars(function_base)
    else None
)

dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", int)


def unseen_makers() -> list[tuple[Any, str]]:
    """What else makes nodes and passes no function mode: attributes of modules and classes."""
    makers = [
        (sys.modules.get("torch._tensor"), "_convert"),
        (getattr(torch._C, "ScriptFunction", None), "__call__"),
        (getattr(torch._C, "ScriptMethod", None), "__call__"),
    ]
    return [(home, name) for home, name in makers if name in getattr(home, "__dict__", {})]


def tracers() -> list[tuple[Any, str]]:
    """What `torch.jit.trace` and its like call to run a program's function."""
    names = ("_create_function_from_trace", "_create_method_from_trace", "_create_graph_by_tracing")
    homes = (torch._C, getattr(torch._C, "ScriptModule", None))
    ends = ("", "_with_dict")
    tracers = [(home, name + end) for home in homes for name in names for end in ends]
    return [(home, name) for home, name in tracers if name in getattr(home, "__dict__", {})]


# What torch's own Python functions ask before they let a function mode take over.
QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

# While it is entered, no function mode and no tensor subclass sees what is asked of tensors.
unseen: Callable[[], Any] = getattr(torch._C, "DisableTorchFunction", nullcontext)


def questions() -> dict[str, Callable[..., bool]]:
    """The functions named in `QUESTIONS`, as far as this torch has them."""
    return {n: vars(torch.overrides)[n] for n in QUESTIONS if hasattr(torch.overrides, n)}


def script_as_builtin(function: Any, original: Any) -> Callable[[], object]:
    """Let TorchScript take ``function`` for the builtin ``original``; return what undoes it."""
    builtins = sys.modules.get("torch.jit._builtins")
    known: dict[int, str] = getattr(builtins, "_get_builtin_table", dict)()
    if id(original) not in known:
        return lambda: None
    known[id(function)] = known[id(original)]
    return functools.partial(known.pop, id(function), None)


_DEFAULT_DISPATCH = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
_NO_DISPATCH = getattr(torch._C, "_disabled_torch_function_impl", None)


def dispatches(kind: type) -> bool:
    """Whether a type, met while modes are asked, handles functions in a way of its own."""
    handler = getattr(kind, "__torch_function__", _NO_DISPATCH)
    return (
        handler is not _NO_DISPATCH and getattr(handler, "__func__", None) is not _DEFAULT_DISPATCH
    )


def subclasses_dispatch() -> bool:
    """Whether tensor subclasses' own ``__torch_function__`` is consulted at this point."""
    enabled = getattr(torch._C, "_is_torch_function_enabled", None)
    return bool(enabled()) if enabled is not None else False


def completed_by_device(func: Any) -> bool:
    """Whether this thread's default device would add itself to a call of ``func``."""
    constructors: Any = getattr(torch.utils._device, "_device_constructors", tuple)()
    return _default_device() is not None and func in constructors


def module_calls() -> list[Any]:
    """The code that runs between a call of a module and its ``forward``, outermost first."""
    names = ("_wrapped_call_impl", "_call_impl")
    return [getattr(vars(torch.nn.Module).get(name), "__code__", None) for name in names]


def missing() -> tuple[str, ...]:
    """What this torch cannot show, one sentence each; empty for the tested versions."""
    gaps = []
    if sequence_number is None or not hasattr(torch._C, "_push_on_torch_function_stack"):
        gaps.append("lines of nodes: this torch tells no sequence numbers or function modes")
    if not hasattr(engine_module, "_engine_run_backward"):
        gaps.append("engine calls: this torch starts its engine in another way")
    if base_apply is None:
        gaps.append("lines of custom autograd.Functions")
    return tuple(gaps)


def modes() -> list[Any]:
    """The function modes of this thread, outermost first."""
    return [mode_at(k) for k in range(depth())]


def push_mode(mode: Any) -> None:
    """Put a function mode below the program's own, which then come and go as without it."""
    stack = modes()
    # The default device is a mode as well, and checks that it is the lowest.
    insert_mode(mode, len(stack) - (bool(stack) and stack[0] is _default_device()))


def remove_mode(mode: Any) -> int | None:
    """Take ``mode`` out of this thread's stack, wherever it is; return how many lay above it."""
    if not any(m is mode for m in modes()):
        return None
    above = []
    while (top := pop()) is not mode:
        above.append(top)
    for other in reversed(above):
        push(other)
    return len(above)


def insert_mode(mode: Any, above: int) -> None:
    """Put ``mode`` below the ``above`` topmost modes, the inverse of `remove_mode`."""
    lifted = [pop() for _ in range(min(above, len(modes())))]
    push(mode)
    for other in reversed(lifted):
        push(other)


def _default_device() -> Any:
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


def engine_homes() -> list[Any]:
    """The modules whose ``_engine_run_backward`` starts the engine."""
    return [m for m in (engine_module, torch.autograd) if hasattr(m, "_engine_run_backward")]


def node_number(node: Any) -> int:
    """The node's sequence number, -1 where it has none that means something."""
    number = int(node._sequence_nr())
    return number if number < (1 << 62) else -1


def kinds_made(result: Any, first: int, after: int) -> frozenset[str]:
    """Types of the nodes ``first..after-1``, as far as they lead to a call's result.

    An input may come from another thread with a number in that range: no more nodes are taken
    than the call made.
    """
    queue = [result]
    kinds = set()
    left = min(after - first, 64)
    for item in queue:
        if left <= 0:
            break
        if isinstance(item, (tuple, list)):
            queue.extend(item[:8])
            continue
        node: Any = item.grad_fn if isinstance(item, torch.Tensor) else item
        if not hasattr(node, "next_functions") or not first <= node_number(node) < after:
            continue
        left -= 1
        kinds.add(node.name())
        queue.extend([other for other, _ in node.next_functions if other is not None])
    return frozenset(kinds)


def rank() -> int | None:
    """This process's rank among distributed workers, None when it is alone."""
    import os

    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def message_of(error: BaseException) -> str:
    """The message of an exception of one of Python's own types, "" for any other.

    A class of the program's may do anything in ``__str__``, so it is never asked.
    """
    if type(error) not in (RuntimeError, ValueError, AttributeError, TypeError):
        return ""
    return error.args[0] if error.args and type(error.args[0]) is str else ""
