"""Runs programs of the pages under onegraph, quickly: one process imports torch and forks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "src" / "onegraph" / "pages"

# Given with -c, so that no frame of it counts as the program's own. Each child sees a folder with
# the program alone, as `cd FOLDER && onegraph run PROGRAM` would.
DRIVER = """
import os, sys, torch, torch._dynamo  # what optimizers import at their first call
import onegraph.recorder.autopsy, onegraph.recorder.patches, onegraph.render.terminal
from onegraph import cli

for folder, program in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.chdir(folder)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600), number)
            try:
                status = cli.main(["run", "--json", "report.json", program])
            except SystemExit as stop:
                status = stop.code
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    with open(os.path.join(folder, "status"), "w") as stream:
        stream.write(str(os.waitstatus_to_exitcode(ended)))
"""


@dataclass(frozen=True)
class Run:
    """What a program did under `onegraph run`."""

    status: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def causes(self) -> list[str]:
        """The causes of its findings."""
        return [finding["cause"] for finding in self.report["findings"]]

    @property
    def printed(self) -> str:
        """The report as it was printed, without the traceback above it."""
        found = re.search(r"^(error|warning|note)\b.*", self.stderr, re.MULTILINE | re.DOTALL)
        return found[0] if found else ""


def run(programs: Mapping[str, tuple[str, str]]) -> dict[str, Run]:
    """Run each program, given as (file name, source); 80 columns wide and without colour."""
    with tempfile.TemporaryDirectory() as temporary:
        arguments = []
        for key, (name, source) in programs.items():
            folder = Path(temporary) / key.replace("/", "+")
            folder.mkdir()
            (folder / name).write_text(source, encoding="utf-8")
            arguments += [str(folder), name]
        environment = {k: v for k, v in os.environ.items() if k != "FORCE_COLOR"}
        environment |= {"COLUMNS": "80", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, *arguments],
            cwd=temporary,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return {key: _read(Path(temporary) / key.replace("/", "+")) for key in programs}


def _read(folder: Path) -> Run:
    report = folder / "report.json"
    return Run(
        status=int((folder / "status").read_text()),
        stdout=(folder / "out").read_text(encoding="utf-8"),
        stderr=(folder / "err").read_text(encoding="utf-8"),
        report=json.loads(report.read_text(encoding="utf-8")) if report.exists() else {},
    )
