"""How much longer `onegraph run` takes to start a program than python does."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import children_seconds, environment
from benchmarks.pairs import Estimate, Sample, differences, in_pairs
from benchmarks.tables import markdown, verdict

TARGET_S = 0.15
SCRIPTS = {
    "an empty script": "pass\n",
    "a script that imports torch": "import torch\n",
    "a script with one backward": (
        "import torch\nx = torch.ones(2, requires_grad=True)\n(x * 2).sum().backward()\n"
    ),
}


def measure(runs: int) -> dict[str, Any]:
    """Script -> seconds of bare python and what `onegraph run` adds, by ``wall`` and ``cpu``."""
    command = Path(sys.executable).with_name("onegraph")
    ours = [str(command)] if command.exists() else [sys.executable, "-m", "onegraph"]
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, text in SCRIPTS.items():
            script = Path(folder) / "script.py"
            script.write_text(text)
            bare = partial(_run, [sys.executable, str(script)], folder)
            watched = partial(_run, [*ours, "run", str(script)], folder)
            bare(0)
            watched(0)  # The first run of each reads files and writes byte code.
            pairs = in_pairs(bare, watched, runs)
            result[title] = {
                "bare": Estimate.of([one.wall for one, _ in pairs]),
                "bare-cpu": Estimate.of([one.cpu for one, _ in pairs]),
                **differences(pairs),
            }
    return result


def table(measured: dict[str, Any]) -> str:
    """What `onegraph run` adds to the start."""
    heads = ["program", "python, s", "`onegraph run` adds, s", "of computing time, s"]
    rows = [
        [
            title,
            f"{row['bare'].median:.3f} (computing {row['bare-cpu'].median:.3f})",
            _cell(row["wall"]) + " " + verdict(row["wall"].median, TARGET_S),
            _cell(row["cpu"]) + " " + verdict(row["cpu"].median, TARGET_S),
        ]
        for title, row in measured.items()
    ]
    return markdown(heads, rows)


def _cell(estimate: Estimate) -> str:
    return f"**{estimate.median:.3f}** [{estimate.low:.3f}, {estimate.high:.3f}]"


def _run(command: list[str], folder: str, _: int) -> Sample:
    before, start = children_seconds(), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True)
    return Sample(time.perf_counter() - start, children_seconds() - before)
