"""The facade: what a program calls, composed of recorder, diagnosis and renderers."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from onegraph.compose import compose
from onegraph.trace import Report
from onegraph.watch import TRACE_ATTRIBUTE, Session, Use

F = TypeVar("F", bound=Callable[..., Any])


class record:
    """Records what builds and frees autograd graphs, in a ``with`` block or a decorated function.

    A backward that fails inside carries its explanation as a note on the exception, whose type
    and message stay torch's. Leaving restores everything that was patched.

    Example:
        >>> with onegraph.record():
        ...     train()
        >>> @onegraph.record()
        ... def train(): ...
    """

    def __init__(self) -> None:
        self._uses: list[Use] = []

    def __enter__(self) -> record:
        use = Use(lines=True, annotate=True)
        use.begin()
        self._uses.append(use)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._uses:
            raise RuntimeError("this recording has not begun: use it in a `with` statement")
        use = self._uses.pop()
        session = Session.current
        try:
            seen = error is None or getattr(error, TRACE_ATTRIBUTE, None) is not None
            if session is not None and error is not None and not seen:
                trace = session.trace_of(error)
                if trace is not None:
                    session.keep(error, trace)
        finally:
            use.end()

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError("record() cannot decorate a generator or coroutine: use `with` inside")

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def report(self) -> Report:
        """What can be said about this recording so far."""
        return report()


def install() -> None:
    """Let every later failing backward of this process carry its explanation as a note.

    Costs nothing while nothing fails: only the calls of the autograd engine are counted, so the
    lines that built a graph stay unknown. Use `record` or ``onegraph run`` to have them.
    """
    if os.getpid() != Use.process or _INSTALLED not in Use.open:
        _INSTALLED.begin()


def diagnose(error: BaseException) -> Report:
    """Explain an exception raised by autograd.

    Args:
        error: the exception, while it is being handled or later.

    Returns:
        A report; without findings when autograd's graph has nothing to do with the exception.

    Raises:
        TypeError: ``error`` is no exception.
    """
    if not isinstance(error, BaseException):
        raise TypeError(f"diagnose() takes an exception, not {type(error).__name__}")
    session = Session.current or Session(lines=False)
    trace = session.trace_of(error)
    exception = {"type": type(error).__name__, "message": str(error)}
    return compose([trace] if trace else [], "raised", 1, exception)


def report() -> Report:
    """What can be said about this process now."""
    session = Session.current
    return compose(session.traces if session is not None else [], "finished", 0, None)


_INSTALLED = Use(lines=False, annotate=True)
