"""What recording keeps over a long training run, and that it still knows the first line then."""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

import onegraph
from benchmarks.machine import one_thread, resident_mb, run_module
from benchmarks.tables import markdown, verdict

MODULE = "benchmarks.memory"
TARGET_MB = 20.0
STEPS = 100_000
# The caches of torch and of the allocator fill first.
SETTLED = 0.02
LOOPS = ("regular", "irregular")


def measure(steps: int = STEPS) -> list[dict[str, Any]]:
    """Train so many tiny steps bare and recorded, each in a process of its own."""
    result = []
    for loop in LOOPS:
        bare = run_module(MODULE, loop, "bare", str(steps))
        row = run_module(MODULE, loop, "record", str(steps))
        result.append({**row, "bare": bare["growth"]})
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """The growth of the process, and the line of a node built before the first step."""
    heads = [
        "steps",
        "grows by, MB",
        "bare",
        "beyond bare, MB",
        "last steps to first",
        "line of the node made before",
    ]
    return markdown(
        heads,
        [
            [
                f"{row['steps']:,} {row['loop']}",
                f"{row['growth']:.1f}",
                f"{row['bare']:.1f}",
                f"**{row['growth'] - row['bare']:.1f}** "
                + verdict(row["growth"] - row["bare"], TARGET_MB),
                f"{row['pace']:.2f}",
                "right" if row["line"] == row["true_line"] else f"WRONG: {row['line']}",
            ]
            for row in rows
        ],
    )


def _worker(loop: str, watch: str, steps: int) -> dict[str, Any]:
    one_thread()
    chance = random.Random(0)
    weight = torch.ones(4, requires_grad=True)
    with onegraph.record() if watch == "record" else nullcontext():
        features = (weight * 2.0).exp()  # the line to remember
        features.sum().backward()
        start = 0.0
        # Elapsed time of the first and of the last hundredth of the steps that count.
        settled, part = int(SETTLED * steps), max(steps // 100, 1)
        marks = {}
        for turn in range(steps):
            if turn in (settled, settled + part, steps - part):
                marks[turn] = time.perf_counter()
            if turn == settled:
                gc.collect()
                start = resident_mb()
            x = weight
            # A program whose steps differ, as with sequences of different lengths.
            for _ in range(3 if loop == "regular" else chance.randrange(1, 12)):
                x = torch.tanh(x * weight)
                if loop == "irregular" and chance.random() < 0.3:
                    x = x + 1.0
            x.sum().backward()
            weight.grad = None
        ended = time.perf_counter()
        pace = (ended - marks[steps - part]) / (marks[settled + part] - marks[settled])
        gc.collect()
        growth = resident_mb() - start
        line = None
        try:
            (features + 1.0).sum().backward()
        except RuntimeError as error:
            report = onegraph.diagnose(error)
            if report.findings:
                line = next((site.line for site in report.findings[0].sites.get("built", ())), None)
    return {
        "loop": loop,
        "steps": steps,
        "growth": growth,
        "pace": pace,
        "line": line,
        "true_line": _true_line(),
    }


def _true_line() -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(k for k, text in enumerate(lines, 1) if text.endswith("# the line to remember"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("watch", choices=("bare", "record"))
    parser.add_argument("steps", type=int)
    options = parser.parse_args()
    print(json.dumps(_worker(options.loop, options.watch, options.steps)))
