"""The recording itself: a torch function mode that notes which expression made which numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from onegraph.recorder import torchapi

if TYPE_CHECKING:
    from onegraph.recorder.session import Recorder
    from onegraph.recorder.tape import Tape

# Entries of the tape that are no interval: an in-place write without a node.
WRITE = -1

_IN_PLACE = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__")
_IN_PLACE_EXCEPT = ("requires_grad_", "retain_grad", "share_memory_", "rename_", "detach_")


class InPlace(dict[Any, bool]):
    """Maps an overridable function to whether it writes into its first argument."""

    def __missing__(self, func: Any) -> bool:
        name = getattr(func, "__name__", "")
        writes = name in _IN_PLACE or (
            name.endswith("_") and not name.endswith("__") and name not in _IN_PLACE_EXCEPT
        )
        self[func] = writes
        return writes


def make_mode(recorder: Recorder, tape: Tape) -> TorchFunctionMode:
    """The mode that writes one thread's tape.

    Everything it needs on each call is a local of this function: the call is on the hot path.
    """
    number = torchapi.sequence_number
    assert number is not None
    frame_at = sys._getframe
    users = recorder.sites.users
    site_of = recorder.sites.known.get
    add_site = recorder.sites.add
    kinds = recorder.sites.kinds
    entries = tape.entries
    note = entries.extend
    in_place = recorder.in_place
    note_write = recorder.note_write
    dispatch = _dispatch

    class RecordingMode(TorchFunctionMode):
        def __torch_function__(  # type: ignore[override]
            self,
            func: Callable[..., Any],
            types: Any,
            args: Any = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            before = number()
            if types:
                result = dispatch(self, func, types, args, kwargs)
            elif kwargs:
                result = func(*args, **kwargs)
            else:
                result = func(*args)
            after = number()
            if after != before:
                frame = frame_at(1)
                code = frame.f_code
                key = 0
                try:
                    while not users[code.co_filename]:
                        frame = frame.f_back  # type: ignore[assignment]
                        code = frame.f_code
                    # An instruction's address: code objects hold their bytecode inline and the
                    # site table keeps every code object it has seen alive.
                    key = id(code) + frame.f_lasti
                    outer = frame.f_back
                    code = outer.f_code  # type: ignore[union-attr]
                    while not users[code.co_filename]:
                        outer = outer.f_back  # type: ignore[union-attr]
                        code = outer.f_code  # type: ignore[union-attr]
                    key = key << 64 | id(code) + outer.f_lasti  # type: ignore[union-attr]
                except AttributeError:
                    pass
                site = site_of(key)
                if site is None:
                    site = add_site(key, frame, frame_at(1))
                    kinds[site] = torchapi.kinds_made(result, before, after)
                if len(entries) >= tape.limit:
                    recorder.reseal(tape)
                note((before - tape.last, after - before, site))
                tape.last = after
            elif in_place[func]:
                note_write(tape, args)
            return result

    return RecordingMode()


def _dispatch(
    mode: TorchFunctionMode,
    func: Callable[..., Any],
    types: tuple[type, ...],
    args: Any,
    kwargs: dict[str, Any] | None,
) -> Any:
    """Hand a call to the tensor subclasses it involves, with the mode still watching inside.

    This is what torch does next, except that it would leave the mode off, so the user's own
    ``__torch_function__`` would go unseen.
    """
    if not torchapi.subclasses_dispatch() or not any(map(_has_own_dispatch, types)):
        return func(*args, **(kwargs or {}))
    torchapi.push_mode(mode)
    try:
        for kind in types:
            result = kind.__torch_function__(func, types, args, kwargs or {})  # type: ignore[attr-defined]
            if result is not NotImplemented:
                return result
    finally:
        torchapi.remove_mode(mode)
    return func(*args, **(kwargs or {}))


def _has_own_dispatch(kind: type) -> bool:
    handler = kind.__torch_function__  # type: ignore[attr-defined]
    return handler is not _DISABLED and getattr(handler, "__func__", None) is not _PLAIN


_PLAIN = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
_DISABLED = torchapi.disabled_dispatch
