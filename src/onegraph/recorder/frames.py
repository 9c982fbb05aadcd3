"""Keeps our frames out of what a program sees of its stack: tracebacks and warnings' places."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LAUNCH = os.path.join(_OURS, "cli", "launch.py")

# `warnings.warn(stacklevel=...)` does not count frames of the import system, which it knows by
# these two words in the name of a code object's file.
_UNCOUNTED = " (importlib._bootstrap)"


@functools.cache
def _uncounted(code: CodeType) -> CodeType:
    return code.replace(co_filename=code.co_filename + _UNCOUNTED)


def uncounted(function: F) -> F:
    """Let warnings raised below ``function`` count stack levels as if it were not there."""
    function.__code__ = _uncounted(function.__code__)
    return function


def forget(error: BaseException) -> None:
    """Take the calling frame off the traceback of an exception that it raises on.

    Call it in ``except`` and follow it by a bare ``raise``, which adds no entry of its own. The
    frame, and the tensors among its locals, then go as soon as it is left.
    """
    traceback = error.__traceback__
    if traceback is not None:
        # Not by assignment: the class may forbid that, as a frozen dataclass does.
        BaseException.with_traceback(error, traceback.tb_next)


def is_ours(filename: str) -> bool:
    """Whether a code object's file is one of onegraph's."""
    return filename.startswith(_OURS)


def is_launch(filename: str) -> bool:
    """Whether a code object's file is the one that calls the program: none below it are its."""
    return filename == _LAUNCH


def without_ours(stack: list[str]) -> list[str]:
    """The entries of a formatted stack, outermost first, that a bare run would have."""
    ours, launch = f'  File "{_OURS}', f'  File "{_LAUNCH}"'
    starts = [k for k, entry in enumerate(stack) if entry.startswith(launch)]
    entries = stack[starts[-1] + 1 :] if starts else stack
    return [entry for entry in entries if not entry.startswith(ours)]
