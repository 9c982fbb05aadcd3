"""Records the ranks that `torch.multiprocessing.spawn` starts."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from onegraph.cli.deliver import Wanted, deliver, undisturbed
from onegraph.recorder.faults import tell_fault
from onegraph.recorder.frames import forget, uncounted
from onegraph.watch import Session, Use


class RecordedRank:
    """The function of a spawned rank, recorded in the child; it travels there by pickle."""

    def __init__(self, function: Callable[..., Any], wanted: Wanted) -> None:
        self.function = function
        self.wanted = wanted

    @uncounted
    def __call__(self, rank: int, *args: Any) -> Any:
        use = Use(lines=True, notes=self.wanted.notes)
        session = use.begin()
        error: BaseException | None = None
        try:
            return self.function(rank, *args)
        except BaseException as raised:
            error = raised
            # The parent shows the traceback of its rank as text.
            forget(raised)
            raise
        finally:
            with undisturbed():
                self._tell(session, use, rank, error)

    def _tell(self, session: Session, use: Use, rank: int, error: BaseException | None) -> None:
        """Deliver this rank's report; how the rank ends is not ours to change."""
        try:
            trace = session.trace_of(error) if error is not None else None
            traces = session.all_traces(trace)
            use.end()
            outcome = "finished" if error is None else "raised"
            deliver(self.wanted, traces, outcome, 0 if error is None else 1, error, rank=rank)
        except Exception as fault:
            tell_fault(fault)


def patch(module: ModuleType, wanted: Wanted) -> None:
    """Let ``start_processes`` start recorded ranks."""
    original = module.start_processes

    @functools.wraps(original)
    def start_processes(fn: Any, *args: Any, **kwargs: Any) -> Any:
        return original(RecordedRank(fn, wanted), *args, **kwargs)

    module.start_processes = start_processes  # type: ignore[attr-defined]
    package = sys.modules.get("torch.multiprocessing")
    if package is not None:
        package.start_processes = start_processes  # type: ignore[attr-defined]
