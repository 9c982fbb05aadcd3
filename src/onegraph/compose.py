"""Applies the rules to what was seen and makes one report of it."""

from __future__ import annotations

import os
import sys
import weakref
from dataclasses import replace
from typing import Any

from onegraph.trace import Finding, Process, Report, Trace


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
    findings = []
    sources = {}
    told = set()
    for trace in traces:
        sources.update(trace.sources)
        for finding in _findings(trace, notes):
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


# What the rules said of the trace seen last: an exception's note and its report are of one.
_said: tuple[weakref.ref[Trace], bool, list[Finding]] | None = None


def _findings(trace: Trace, notes: bool) -> list[Finding]:
    global _said
    from onegraph.diagnosis import findings_of

    if _said is None or _said[0]() is not trace or _said[1] != notes:
        _said = weakref.ref(trace), notes, findings_of(trace, notes=notes)
    return _said[2]


def this_process(rank: int | None = None) -> Process:
    """This process, of the given rank or of the one it says it has."""
    return Process(os.getpid(), rank_of_process() if rank is None else rank)


def rank_of_process() -> int | None:
    """This process's rank, None when it is alone."""
    if "torch" in sys.modules:
        from onegraph.recorder import torchapi

        return torchapi.rank()
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
