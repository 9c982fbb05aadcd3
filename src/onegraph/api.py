"""The facade: what a program calls, composed of recorder, diagnosis and renderers."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from onegraph.trace import Process, Report, Trace

F = TypeVar("F", bound=Callable[..., Any])

TRACE_ATTRIBUTE = "__onegraph_trace__"


class Session:
    """A recorder with its patches, counted so that nested uses share one."""

    current: Session | None = None

    def __init__(self, *, lines: bool, notes: bool = False) -> None:
        from onegraph.recorder.patches import Patches
        from onegraph.recorder.session import Recorder
        from onegraph.recorder.warn import WarningPlaces

        self.recorder = Recorder(lines=lines, notes=notes)
        self.patches = Patches(self.recorder, self._failed)
        self.warnings = WarningPlaces() if lines else None
        self.traces: list[Trace] = []
        self.annotate = False
        self.users = 0

    def start(self) -> None:
        """Begin to watch this process."""
        self.patches.install()
        if self.warnings is not None:
            self.warnings.install()
        self.recorder.active = True
        self.recorder.enter_thread()

    def stop(self) -> None:
        """Leave the process as it was found."""
        self.recorder.active = False
        self.recorder.leave_all()
        if self.warnings is not None:
            self.warnings.remove()
        self.patches.remove()

    def _failed(self, ordinal: int, error: BaseException, outputs: Any) -> None:
        """Read the graph while it still stands, once for each exception."""
        from onegraph.recorder import autopsy, torchapi

        if not torchapi.explained(torchapi.message_of(error)) or hasattr(error, TRACE_ATTRIBUTE):
            return
        if len(self.traces) >= 20:
            return
        try:
            trace = autopsy.of_engine_failure(self.recorder, ordinal, error, outputs)
        except Exception as fault:
            _own_fault(fault)
            return
        if trace is None:
            return
        self._keep(error, trace)

    def _keep(self, error: BaseException, trace: Trace) -> None:
        self.traces.append(trace)
        error.__dict__[TRACE_ATTRIBUTE] = trace
        if self.annotate:
            note = explanation(trace)
            if note:
                error.add_note(note)

    def trace_of(self, error: BaseException) -> Trace | None:
        """The trace of an exception, read now if reading was not due before."""
        from onegraph.recorder import autopsy, torchapi

        for link in _chain(error):
            trace = getattr(link, TRACE_ATTRIBUTE, None)
            if trace is not None:
                return trace  # type: ignore[no-any-return]
        for link in _chain(error):
            if torchapi.explained(torchapi.message_of(link)) and link.__traceback__ is not None:
                try:
                    trace = autopsy.of_saved_access(self.recorder, link, link.__traceback__)
                except Exception as fault:
                    _own_fault(fault)
                    trace = None
                if trace is not None:
                    self.traces.append(trace)
                    return trace
        return None

    def all_traces(self, last: Trace | None = None) -> list[Trace]:
        """What was seen fail, the failure that ended the program first."""
        from onegraph.recorder import autopsy

        traces = list(self.traces)
        if last is not None:
            traces = [last, *(trace for trace in traces if trace is not last)]
        if not traces and self.recorder.notes:
            traces = [autopsy.of_nothing(self.recorder)]
        return traces


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _own_fault(fault: Exception) -> None:
    import os
    import traceback

    if os.environ.get("ONEGRAPH_DEBUG"):
        traceback.print_exception(fault)
    else:
        print(
            f"onegraph: could not read the graph ({type(fault).__name__}: {fault}); "
            "set ONEGRAPH_DEBUG=1 for the details",
            file=sys.stderr,
        )


def when_torch_is_imported(action: Callable[[], None]) -> None:
    """Call ``action`` once torch is there: a program that never imports it never pays for it."""
    from onegraph.recorder.imports import AfterImport

    AfterImport({"torch": lambda _: action()}).install()


def begin(*, lines: bool, notes: bool = False) -> Session:
    """Start watching, or share the watch that is on."""
    session = Session.current
    if session is not None and lines and not session.recorder.lines:
        # `install` watches less than `record` needs: hand over to a fuller watch.
        annotate, users = session.annotate, session.users
        session.stop()
        session = Session(lines=True, notes=notes)
        session.annotate, session.users = annotate, users
        session.start()
        Session.current = session
    elif session is None:
        session = Session(lines=lines, notes=notes)
        session.start()
        Session.current = session
    session.users += 1
    return session


def end(session: Session) -> None:
    """Give up one use of the watch; the last one ends it."""
    current = Session.current
    if current is None:
        return
    current.users -= 1
    if current.users <= 0:
        current.stop()
        Session.current = None


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
        self._sessions: list[tuple[Session, bool]] = []

    def __enter__(self) -> record:
        session = begin(lines=True)
        self._sessions.append((session, session.annotate))
        session.annotate = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session, annotate = self._sessions.pop()
        try:
            if error is not None and getattr(error, TRACE_ATTRIBUTE, None) is None:
                trace = session.trace_of(error)
                if trace is not None:
                    session._keep(error, trace)
        finally:
            session.annotate = annotate
            end(session)

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
    begin(lines=False).annotate = True


def diagnose(error: BaseException) -> Report:
    """Explain an exception raised by autograd.

    Args:
        error: the exception, while it is being handled or later.

    Returns:
        A report; without findings when autograd's graph has nothing to do with the exception.
    """
    session = Session.current or Session(lines=False)
    trace = session.trace_of(error)
    exception = {"type": type(error).__name__, "message": str(error)}
    return compose([trace] if trace else [], "raised", 1, exception)


def report() -> Report:
    """What can be said about this process now."""
    session = Session.current
    return compose(session.traces if session is not None else [], "finished", 0, None)


def compose(
    traces: list[Trace],
    outcome: Any,
    exit_status: int,
    exception: dict[str, str] | None,
    *,
    command: tuple[str, ...] = (),
    process: Process | None = None,
    notes: bool = False,
) -> Report:
    """Apply the rules to what was seen and gather the findings, most important first."""
    from onegraph.diagnosis import findings_of

    findings = []
    sources = {}
    told = set()
    for trace in traces:
        sources.update(trace.sources)
        for finding in findings_of(trace, notes=notes):
            # The same fault met again, in another thread or after being caught, is one finding.
            places = {role: sites[0].place for role, sites in finding.sites.items()}
            key = (finding.symptom, finding.cause, tuple(sorted(places.items())))
            if key not in told:
                told.add(key)
                findings.append(finding)
    order = {"error": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda finding: order[finding.level])
    if process is None:
        process = this_process()
    return Report(
        versions=traces[0].versions if traces else _versions(),
        command=command,
        process=process,
        outcome=outcome,
        exit_status=exit_status,
        exception=exception,
        findings=tuple(findings),
        sources=sources,
    )


def this_process(rank: int | None = None) -> Process:
    """This process, of the given rank or of the one it says it has."""
    import os

    return Process(os.getpid(), rank_of_process() if rank is None else rank)


def rank_of_process() -> int | None:
    """This process's rank, None when it is alone."""
    if "torch" in sys.modules:
        from onegraph.recorder import torchapi

        return torchapi.rank()
    import os

    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def _versions() -> dict[str, str]:
    from onegraph._version import __version__

    loaded = sys.modules.get("torch")
    return {
        "onegraph": __version__,
        "torch": str(getattr(loaded, "__version__", "not imported")),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def explanation(trace: Trace) -> str:
    """The findings of a trace as plain text, for an exception's note."""
    from onegraph.render.plain import render

    found = compose([trace], "raised", 1, None)
    return render(replace(found, exception=None), width=100) if found.findings else ""


def abilities() -> list[str]:
    """What the installed torch lets onegraph see, a line each."""
    try:
        import importlib

        torchapi = importlib.import_module("onegraph.recorder.torchapi")
    except ImportError as error:
        return [f"torch cannot be imported: {error}"]
    versions = _versions()
    lines = [f"torch {versions['torch']}, python {versions['python']}"]
    gaps = torchapi.missing()
    return lines + ([f"unknown here: {gap}" for gap in gaps] or ["everything is seen"])


class Watch:
    """The recording of one program from the command line: it begins when torch is imported."""

    def __init__(
        self,
        *,
        notes: bool,
        folder: str,
        script: str | None,
        code: str | None,
        module: str | None,
        wanted: Any,
    ) -> None:
        self.notes = notes
        self.folder = folder
        self.script = script
        self.code = code
        self.module = module
        self.wanted = wanted
        self.session: Session | None = None
        when_torch_is_imported(self._start)

    def _start(self) -> None:
        from onegraph import children
        from onegraph.recorder.imports import AfterImport

        session = self.session = begin(lines=True, notes=self.notes)
        recorder = session.recorder
        recorder.folder = self.folder
        if self.code is not None:
            recorder.users["<string>"] = True
            recorder.texts["<string>"] = self.code
        main = sys.modules.get("__main__")
        if main is not None and getattr(main, "__file__", None):
            recorder.users.own(str(main.__file__), package=self.module is not None)
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
        end(session)
        return traces
