"""Keeps our frames out of what a program sees of its stack: tracebacks and warnings' places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# `warnings.warn(stacklevel=...)` does not count frames of the import system, which it knows by
# these two words in the name of a code object's file.
_UNCOUNTED = " (importlib._bootstrap)"


def uncounted(function: F) -> F:
    """Let warnings raised below ``function`` count stack levels as if it were not there."""
    code = function.__code__
    if not code.co_filename.endswith(_UNCOUNTED):
        function.__code__ = code.replace(co_filename=code.co_filename + _UNCOUNTED)
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
