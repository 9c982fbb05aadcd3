"""Records the ranks that `torch.multiprocessing.spawn` starts."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from onegraph import api
from onegraph.deliver import Wanted, deliver, undisturbed


class RecordedRank:
    """The function of a spawned rank, recorded in the child; it travels there by pickle."""

    def __init__(self, function: Callable[..., Any], wanted: Wanted) -> None:
        self.function = function
        self.wanted = wanted

    def __call__(self, rank: int, *args: Any) -> Any:
        session = api.begin(lines=True, notes=self.wanted.notes)
        error: BaseException | None = None
        try:
            return self.function(rank, *args)
        except BaseException as raised:
            error = raised
            raise
        finally:
            with undisturbed():
                trace = session.trace_of(error) if error is not None else None
                traces = session.all_traces(trace)
                api.end(session)
                outcome = "finished" if error is None else "raised"
                deliver(self.wanted, traces, outcome, 0 if error is None else 1, error, rank=rank)


def patch(module: ModuleType, wanted: Wanted) -> None:
    """Let ``start_processes`` start recorded ranks."""
    import functools

    original = module.start_processes

    @functools.wraps(original)
    def start_processes(fn: Any, *args: Any, **kwargs: Any) -> Any:
        return original(RecordedRank(fn, wanted), *args, **kwargs)

    module.start_processes = start_processes  # type: ignore[attr-defined]
    import torch.multiprocessing as package

    package.start_processes = start_processes
