"""The recording itself: a torch function mode that notes which expression made which numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from onegraph.recorder import torchapi
from onegraph.recorder.effects import FIRST, GRADIENT, Effects
from onegraph.recorder.frames import forget, uncounted

if TYPE_CHECKING:
    from onegraph.recorder.session import Recorder
    from onegraph.recorder.tape import Tape

# Python would note here which warnings it has shown; see `warn` for where they belong.
__warningregistry__ = None


class Recording(TorchFunctionMode):
    """What marks a function mode as ours."""


def make_mode(recorder: Recorder, tape: Tape) -> Recording:
    """The mode that writes one thread's tape.

    Everything it needs on each call is a local of this function: the call is on the hot path.
    """
    assert torchapi.sequence_number is not None
    number: Callable[[], int] = torchapi.sequence_number
    frame_at = sys._getframe
    users = recorder.sites.users
    site_of = recorder.sites.known.get
    add_site = recorder.sites.add
    kinds = recorder.sites.kinds
    entries = tape.entries
    note = entries.extend
    effects = Effects()
    note_effect = recorder.note_effect
    of_optimizer = recorder.stepping.known
    look = recorder.look_for_cut
    stemming = recorder.cuts.stemming
    join = recorder.cuts.join
    unseen = torchapi.unseen
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    # Between a module's caller and its `forward`, and known at a glance.
    module_entry, module_call = torchapi.module_calls()

    class RecordingMode(Recording):
        @uncounted
        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: Any,
            args: Any = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            plain = True
            if types:
                # Attributes of plain tensors come with their type, and are read all the time.
                plain = types[0] is tensor or types[0] is parameter
                if not plain and _left_to_subclasses(func, types):
                    return NotImplemented
            before = number()
            try:
                result = func(*args, **kwargs) if kwargs else func(*args)
            except BaseException as error:
                forget(error)
                raise
            after = number()
            if after != before:
                frame = frame_at(1)
                key: object = 0
                try:
                    while not users[(code := frame.f_code).co_filename]:
                        frame = frame.f_back  # type: ignore[assignment]
                    # An instruction's address: code objects hold their bytecode inline and the
                    # site table keeps every code object it has seen alive.
                    key = at = id(code) + frame.f_lasti
                    outer: Any = frame.f_back
                    if outer.f_code is module_call:
                        outer = outer.f_back
                    if outer.f_code is module_entry:
                        outer = outer.f_back
                    while not users[(code := outer.f_code).co_filename]:
                        outer = outer.f_back
                    key = (at, id(code) + outer.f_lasti)
                except AttributeError:
                    pass
                site = site_of(key)
                if site is None:
                    site = add_site(key, frame, frame_at(1))
                    with unseen():
                        kinds[site] = torchapi.kinds_made(result, before, after)
                if len(entries) >= tape.limit:
                    recorder.reseal(tape)
                note((before - tape.last, after - before, site))
                tape.last = after
            try:
                effect = effects[func]
                if effect:
                    if (effect == GRADIENT and result is not None) or (
                        effect == FIRST and of_optimizer(frame_at(1), args, recorder.ordinal)
                    ):
                        pass
                    elif plain:
                        note_effect(tape, effect, func, args, kwargs, result, after)
                    else:
                        with unseen():
                            note_effect(tape, effect, func, args, kwargs, result, after)
                elif kwargs and "out" in kwargs:
                    with unseen():
                        note_effect(tape, FIRST, func, args, kwargs, result, after)
                elif after != before:
                    if stemming:
                        with unseen():
                            join(args, kwargs)
                elif plain and type(result) is tensor and not result.requires_grad:
                    look(func, args, kwargs, result)
            except Exception as fault:
                recorder.fault(fault)
            return result

    return RecordingMode()


def retire(mode: Recording) -> None:
    """Make a mode do nothing: it is on the stack of a thread that only itself can take it off."""
    type(mode).__torch_function__ = _pass_on  # type: ignore[assignment]


@uncounted
def _pass_on(
    mode: Recording, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    if types and _left_to_subclasses(func, types):
        return NotImplemented
    try:
        return func(*args, **(kwargs or {}))
    except BaseException as error:
        forget(error)
        raise


def _left_to_subclasses(func: Callable[..., Any], types: tuple[type, ...]) -> bool:
    """Whether the mode declines: torch then asks the tensor subclasses, with the mode still on.

    So their own handlers are called by torch, once each, and what they call is recorded. A device
    below the mode would be passed over, though, where it has something to add.
    """
    return (
        any(map(torchapi.dispatches, types))
        and torchapi.subclasses_dispatch()
        and not torchapi.completed_by_device(func)
    )
