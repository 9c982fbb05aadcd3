"""Runs a program bare and under ``onegraph run``, each in a process of its own, side by side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"

# What differs between any two runs: addresses, and the time and process of torch's log lines.
_CHANCE = re.compile(r"\b0x[0-9a-f]{8,}\b|^[IWE]\d{4} [\d:.]+ \d+ ", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """What a program's caller sees of it."""

    status: int
    out: str
    err: str


# A report at the end of what a program says on stderr.
_REPORT = re.compile(
    r"\n(error|warning)( \(caught\))?: .*\nmore: onegraph explain \S+\n\Z", re.DOTALL
)


def without_report(ended: Ended) -> Ended:
    """The same without a report at its end, which has to be there."""
    err, count = _REPORT.subn("", ended.err)
    assert count == 1, ended.err
    return Ended(ended.status, ended.out, err)


@dataclass(frozen=True)
class Pair:
    """The same program twice."""

    bare: Ended
    recorded: Ended


def run_both(
    program: Path,
    arguments: Sequence[str] = (),
    *,
    folder: Path,
    options: Sequence[str] = (),
    answers: str = "",
    **environment: str,
) -> Pair:
    """Run ``python [options] program [arguments]``, and the same with ``-m onegraph run``.

    Args:
        program: the script.
        arguments: the script's.
        folder: where files that the program writes may go; each run has a part of its own.
        options: the interpreter's.
        answers: what both find on their standard input.
        environment: variables on top of this process's own.
    """
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    variables.pop("PYTHONWARNINGS", None)
    variables.update(environment)
    running = []
    for name, launcher in (("bare", ()), ("recorded", ("-m", "onegraph", "run"))):
        (folder / name).mkdir()
        process = subprocess.Popen(
            [sys.executable, *options, *launcher, str(program), *arguments],
            cwd=folder / name,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        running.append(process)
    ended = []
    for process in running:
        out, err = process.communicate(answers, timeout=300)
        ended.append(Ended(process.returncode, _CHANCE.sub("*", out), _CHANCE.sub("*", err)))
    return Pair(*ended)
