"""Who watches this process: one session at a time, shared by all who asked for it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from onegraph.trace import Trace, messages

TRACE_ATTRIBUTE = "__onegraph_trace__"


class Session:
    """A recorder with its patches, and what it saw fail."""

    current: Session | None = None

    def __init__(self, *, lines: bool, notes: bool = False) -> None:
        from onegraph.recorder.patches import Patches
        from onegraph.recorder.session import Recorder
        from onegraph.recorder.warn import WarningPlaces

        self.recorder = Recorder(lines=lines, notes=notes)
        self.patches = Patches(self.recorder, self._failed)
        self.warnings = WarningPlaces() if lines else None
        self.traces: list[Trace] = []

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

    def _failed(
        self, ordinal: int, error: BaseException, outputs: Any, inputs: Sequence[Any]
    ) -> None:
        """Read the graph while it still stands, once for each exception."""
        from onegraph.recorder import autopsy, torchapi
        from onegraph.recorder.faults import tell_fault

        symptom = messages.symptom_of(torchapi.message_of(error))
        if symptom not in messages.OF_ENGINE or hasattr(error, TRACE_ATTRIBUTE):
            return
        if symptom == messages.READY_TWICE and self.recorder.engine.parent[ordinal - 1]:
            return  # the call that the program made shows the whole graph
        if len(self.traces) >= 20:
            return
        with _uncollected():
            try:
                trace = autopsy.of_engine_failure(self.recorder, ordinal, error, outputs, inputs)
            except Exception as fault:
                tell_fault(fault)
                return
            if trace is not None:
                self.keep(error, trace)

    def keep(self, error: BaseException, trace: Trace) -> None:
        self.traces.append(trace)
        error.__dict__[TRACE_ATTRIBUTE] = trace
        if Use.annotating:
            from onegraph.compose import explanation

            note = explanation(trace)
            if note:
                error.add_note(note)

    def trace_of(self, error: BaseException) -> Trace | None:
        """The trace of an exception, read now if reading was not due before."""
        from onegraph.recorder import autopsy, torchapi
        from onegraph.recorder.faults import tell_fault

        for link in _chain(error):
            trace = getattr(link, TRACE_ATTRIBUTE, None)
            if trace is not None:
                return trace  # type: ignore[no-any-return]
        for link in _chain(error):
            symptom = messages.symptom_of(torchapi.message_of(link))
            if symptom is not None and link.__traceback__ is not None:
                read = (
                    autopsy.of_saved_access
                    if symptom in messages.OF_ENGINE
                    else autopsy.of_operation
                )
                try:
                    trace = read(self.recorder, link, link.__traceback__)
                except Exception as fault:
                    tell_fault(fault)
                    trace = None
                if trace is not None:
                    self.traces.append(trace)
                    return trace
        return None

    def all_traces(self, last: Trace | None = None) -> list[Trace]:
        """What was seen fail, the failure that ended the program first."""
        from onegraph.recorder import autopsy
        from onegraph.recorder.faults import tell_fault

        traces = list(self.traces)
        if last is not None:
            traces = [last, *(trace for trace in traces if trace is not last)]
        if not traces and self.recorder.lines:
            # Only a program that ran to its end shows what it never used.
            try:
                end = autopsy.of_the_end(self.recorder)
            except Exception as fault:
                tell_fault(fault)
                end = None
            traces = [end] if end is not None else []
        return traces


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile: a million nodes would be searched for it over and over."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


class Use:
    """One reason to watch this process. The session of the moment is as full as any use needs.

    Args:
        lines: record which line made which node; without it only engine calls are counted.
        notes: also note what `Recorder` notes for notes.
        annotate: let failing calls carry their explanation while this use lasts.
    """

    open: ClassVar[list[Use]] = []
    annotating: ClassVar[int] = 0
    _lock: ClassVar[Any] = threading.RLock()
    process: ClassVar[int] = 0

    def __init__(self, *, lines: bool, notes: bool = False, annotate: bool = False) -> None:
        self.lines = lines
        self.notes = notes
        self.annotate = annotate

    def begin(self) -> Session:
        """Start watching, or share the watch that is on."""
        if Use.process != os.getpid():
            # In a forked child the watch of its parent has ended.
            Use.process, Use._lock = os.getpid(), threading.RLock()
            Use.open.clear()
            Use.annotating = 0
            Session.current = None
        with Use._lock:
            Use.open.append(self)
            Use.annotating += self.annotate
            Use._settle()
        assert Session.current is not None
        return Session.current

    def end(self) -> None:
        """Give up this use; the last one ends the watch. Ending it again does nothing."""
        with Use._lock:
            if self in Use.open:
                Use.open.remove(self)
                Use.annotating -= self.annotate
                Use._settle()

    @staticmethod
    def _settle() -> None:
        """Have the session that the open uses need."""
        session = Session.current
        lines = any(use.lines for use in Use.open)
        if session is not None and (not Use.open or session.recorder.lines != lines):
            Session.current = None
            session.stop()
        if Use.open and Session.current is None:
            following = Session(lines=lines, notes=any(use.notes for use in Use.open))
            if session is not None:
                following.traces = session.traces
            following.start()
            Session.current = following
