"""Brings a report to where it was asked for: stderr, a JSON file, a saved trace."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onegraph.compose import compose, this_process
from onegraph.trace import Report, Trace, codec


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asked for; ``{rank}`` in a file name stands for the process's rank."""

    json: str | None = None
    trace: str | None = None
    source: bool = True
    notes: bool = False
    command: tuple[str, ...] = ()


def deliver(
    wanted: Wanted,
    traces: list[Trace],
    outcome: Any,
    exit_status: int,
    error: BaseException | None,
    *,
    rank: int | None = None,
) -> Report:
    """Compose the report of this process, write the files and print the findings to stderr."""
    exception = None
    if error is not None and not isinstance(error, SystemExit):
        exception = {"type": type(error).__name__, "message": _message(error)}
    process = this_process(rank)
    report = compose(
        traces,
        outcome,
        exit_status,
        exception,
        command=wanted.command,
        process=process,
        notes=wanted.notes,
    )
    if report.findings:
        show(report, source=wanted.source)
    # After the report, which a file that cannot be written must not cost.
    if wanted.json:
        _write(wanted.json, process.rank, codec.report_to_json(report))
    if wanted.trace:
        _write(wanted.trace, process.rank, codec.traces_to_json(traces, report))
    return report


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def show(report: Report, *, source: bool = True) -> None:
    """Print the findings to stderr, in one piece even where several ranks share it."""
    from onegraph.render.terminal import render

    stream = sys.__stderr__
    if stream is None:
        return
    text = render(report, stream, source=source)
    with contextlib.suppress(Exception):
        stream.flush()
    data = ("\n" + text).encode(stream.encoding or "utf-8", errors="replace")
    with _one_at_a_time(report.process.rank), contextlib.suppress(OSError):
        view = memoryview(data)
        while view:
            view = view[os.write(stream.fileno(), view) :]


def _write(path: str, rank: int | None, text: str) -> None:
    path = path.replace("{rank}", "main" if rank is None else str(rank))
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        # A pipe or a device is written to, never replaced; a folder says so itself.
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return
    folder = os.path.dirname(path)
    # A reader never sees half a document.
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".onegraph-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _one_at_a_time(rank: int | None) -> Iterator[None]:
    """Keep the ranks of one node from writing into each other's lines."""
    if rank is None:
        yield
        return
    try:
        import fcntl
    except ImportError:
        yield
        return
    name = os.path.join(tempfile.gettempdir(), f"onegraph-{os.getuid()}-{os.getppid()}.lock")
    try:
        handle = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(name)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Finish the report before a launcher's SIGTERM ends this rank because another one failed."""
    pending: list[int] = []
    try:
        before = signal.signal(signal.SIGTERM, lambda number, _: pending.append(number))
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if pending:
            os.kill(os.getpid(), signal.SIGTERM)
