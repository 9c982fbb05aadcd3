"""The latest in-place writes: into which storage, by which expression, and when."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from onegraph.recorder.effects import FIRST, STATISTICS

# What a saved tensor's version says was written is looked for among so many of the last writes.
KEPT = 20_000

GRAD_OFF, REQUIRES_GRAD, LEAF, STEP = 1, 2, 4, 8

_FIELDS = 8


class OptimizerFiles(dict[str, bool]):
    """Maps a file name to whether it is one of torch's optimizers."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = answer = f"torch{os.sep}optim{os.sep}" in filename
        return answer


class Stepping:
    """Quickly tells the writes of torch's optimizers that need not be noted."""

    def __init__(self) -> None:
        self.files = OptimizerFiles()
        self._last: tuple[int, int] = (0, 0)

    def known(self, caller: FrameType, args: Sequence[Any], ordinal: int) -> bool:
        """Whether a write is to what an optimizer keeps for itself, or one more to a parameter.

        What it keeps for itself is in no graph; a parameter's first write in a step stands for all.
        """
        if not self.files[caller.f_code.co_filename] or not args:
            return False
        first = args[0]
        if type(first) is list:
            first = first[0] if first else None
        if not isinstance(first, torch.Tensor):
            return False
        if not first.requires_grad:
            return True
        mark = (id(first), ordinal)
        if mark == self._last:
            return True
        self._last = mark
        return False


class Written(NamedTuple):
    """One write.

    Args:
        storage: the address of the storage, as long as it lives.
        site: the expression.
        number: the writing thread's next sequence number just after.
        epoch: how many engine calls had begun.
        thread: the tape's index.
        op: the function's name.
        file: of the code that called it, a library's or the user's own.
        flags: `GRAD_OFF`, `STEP` in an optimizer's step, and of the tensor `REQUIRES_GRAD` and
            `LEAF`.
    """

    storage: int
    site: int
    number: int
    epoch: int
    thread: int
    op: str
    file: str
    flags: int


class Writes:
    """A bounded log of writes."""

    def __init__(self) -> None:
        self._log = array("q")
        self._ops: dict[str, int] = {}
        self._files: dict[str, int] = {}

    def note(
        self,
        targets: Sequence[Any],
        func: Any,
        file: str,
        when: tuple[int, int, int, int],
        stepping: bool,
    ) -> None:
        """Note a write into each of the targets; ``when``: site, number, epoch, thread."""
        op = self._ops.setdefault(getattr(func, "__name__", "?"), len(self._ops))
        home = self._files.setdefault(file, len(self._files))
        off = (0 if torch.is_grad_enabled() else GRAD_OFF) | (STEP if stepping else 0)
        log = self._log
        for target in targets:
            storage = storage_of(target)
            if storage:
                flags = off
                # Of a view that was just written, to ask is to have its history made anew.
                owner = target if target._base is None else target._base
                if owner.requires_grad:
                    flags |= REQUIRES_GRAD | (LEAF if owner.is_leaf else 0)
                log.extend((storage, *when, op, home, flags))
        if len(log) > 2 * KEPT * _FIELDS:
            del log[: KEPT * _FIELDS]

    def since(self, epoch: int) -> Iterator[Written]:
        """The kept writes after ``epoch`` engine calls had begun, oldest first."""
        names, files = list(self._ops), list(self._files)
        log = self._log
        for at in range(0, len(log), _FIELDS):
            storage, site, number, when, thread, op, file, flags = log[at : at + _FIELDS]
            if when >= epoch:
                yield Written(storage, site, number, when, thread, names[op], files[file], flags)


def targets_of(how: int, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Sequence[Any]:
    """The tensors that a call wrote into."""
    if kwargs and "out" in kwargs:
        out = kwargs["out"]
        outs = out if isinstance(out, (tuple, list)) else (out,)
        return [o for o in outs if isinstance(o, torch.Tensor)]
    if how == STATISTICS:
        # input, weight, bias, running_mean, running_var, training
        training = len(args) > 5 and args[5] is True
        return [s for s in args[3:5] if s is not None] if training else ()
    if how == FIRST and args:
        first = args[0]
        if isinstance(first, torch.Tensor):
            return (first,)
        return [t for t in first if isinstance(t, torch.Tensor)] if type(first) is list else ()
    return ()


def has_history(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires a gradient, asked so that nothing changes by it.

    A view made under no_grad whose base has been written since raises when it is asked.
    """
    owner = tensor if tensor._base is None or torch.is_grad_enabled() else tensor._base
    try:
        return owner.requires_grad
    except RuntimeError:
        return False


def storage_of(tensor: Any) -> int:
    """What tells one tensor's memory from another's while both live; 0 where it has none."""
    if not isinstance(tensor, torch.Tensor):
        return 0
    try:
        return int(tensor.untyped_storage()._cdata)
    except Exception:
        return 0
