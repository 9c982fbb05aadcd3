"""Runs programs under the command line in forked children that share one import of torch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True)
class Run:
    """How a program under ``onegraph run`` ended: the shell's view and the JSON report."""

    status: int
    out: str
    err: str
    report: dict[str, Any] | None

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The report's findings; a run without a report has none and fails the test that asks."""
        assert self.report is not None, self.err
        found: list[dict[str, Any]] = self.report["findings"]
        return found


def preload() -> None:
    """Import what nearly every program imports, once, on one thread."""
    import numpy  # noqa: F401
    import torch
    import torch._dynamo

    torch.set_num_threads(1)


def run(folder: Path, program: Sequence[str], options: Sequence[str] = ()) -> Run:
    """``onegraph run [options] program...`` in ``folder``, with the program's report."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "report.json"
        status, stdout, stderr = command(folder, ["run", *options, "--json", str(out), *program])
        report = json.loads(out.read_text()) if out.exists() else None
        return Run(status, stdout, stderr, report)


def command(folder: Path, arguments: Sequence[str]) -> tuple[int, str, str]:
    """``onegraph arguments`` in a forked child: (exit status, stdout, stderr)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _run_here(folder, list(arguments), out.fileno(), err.fileno())
        _, waited = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        texts = out.read().decode(), err.read().decode()
        return os.waitstatus_to_exitcode(waited), *texts


def _run_here(folder: Path, arguments: list[str], out: int, err: int) -> NoReturn:
    status: Any = 70
    try:
        import sys
        import warnings

        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        # A test runner may have replaced the streams and the filters.
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(
            2, "w", errors="backslashreplace", buffering=1, closefd=False
        )
        warnings.resetwarnings()
        os.environ.pop("COLUMNS", None)
        from onegraph.cli import main

        try:
            status = main(arguments)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
