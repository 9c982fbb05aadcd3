"""The recording of one program from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from onegraph.trace import Trace
from onegraph.watch import Session, Use


class Program:
    """The recording of one program from the command line: it begins when torch is imported."""

    def __init__(
        self,
        *,
        notes: bool,
        folder: str,
        code: str | None,
        package: bool,
        wanted: Any,
    ) -> None:
        self.notes = notes
        self.folder = folder
        self.code = code
        self.package = package
        self.wanted = wanted
        self.use = Use(lines=True, notes=notes)
        self.session: Session | None = None
        when_torch_is_imported(self._start)

    def _start(self) -> None:
        from onegraph.cli import children
        from onegraph.recorder.imports import AfterImport

        session = self.session = self.use.begin()
        recorder = session.recorder
        recorder.folder = self.folder
        if self.code is not None:
            recorder.users["<string>"] = True
            recorder.texts["<string>"] = self.code
        main = sys.modules.get("__main__")
        if main is not None and getattr(main, "__file__", None):
            recorder.users.own(str(main.__file__), package=self.package)
        AfterImport(
            {"torch.multiprocessing.spawn": lambda m: children.patch(m, self.wanted)}
        ).install()

    def finish(self, error: BaseException | None) -> list[Trace]:
        """Stop recording and return what was seen, the failure that ended the program first."""
        session = self.session
        if session is None:
            return []
        trace = session.trace_of(error) if error is not None else None
        traces = session.all_traces(trace)
        self.use.end()
        return traces


def when_torch_is_imported(action: Callable[[], None]) -> None:
    """Call ``action`` once torch is there: a program that never imports it never pays for it."""
    from onegraph.recorder.imports import AfterImport

    AfterImport({"torch": lambda _: action()}).install()
