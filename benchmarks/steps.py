"""The cost of a training step under each watch, as ratios to the bare step."""

from __future__ import annotations

import argparse
import json
from dataclasses import astuple
from statistics import median
from typing import Any

from benchmarks.machine import one_thread, run_module
from benchmarks.pairs import Estimate, Sample, in_pairs, measure_block, ratios
from benchmarks.programs import COLUMNS, PROGRAMS, TARGETS, in_a_library
from benchmarks.tables import markdown, verdict

MODULE = "benchmarks.steps"


INTRODUCTION = (
    "Ratios to the bare step: the median over pairs, its bootstrap interval, and the extremes. "
    "Other jobs on the machine disturb the elapsed time more than the computing time."
)


def measure(program: str, columns: list[str], pairs: int, steps: int) -> dict[str, Any]:
    """Run a program under every watch, each in a process of its own.

    Args:
        program, columns: names in `PROGRAMS` and `COLUMNS`.
        pairs: for recording; the other columns have a share of it.
        steps: timed in each half of a pair.

    Returns:
        ``bare`` (ms a step) and ``columns``: column -> ratios by ``wall`` and ``cpu``.
    """
    found: dict[str, Any] = {}
    bare: list[float] = []
    for column in columns:
        count = max(1, round(pairs * COLUMNS[column].share))
        rows = run_module(MODULE, program, column, str(count), str(steps))
        samples = [(Sample(*one), Sample(*other)) for one, other in rows]
        bare += [one.cpu for one, _ in samples]
        found[column] = ratios(samples)
    return {"bare": 1_000 * median(bare), "columns": found}


def table(program: str, measured: dict[str, Any]) -> str:
    """The ratios of a program by both clocks, and how they stand to the targets."""
    heads = ["watch", "computing time", "95 % interval", "least to most"]
    heads += ["elapsed time", "95 % interval", "least to most", "pairs", "target"]
    rows = []
    for column, clocks in measured["columns"].items():
        target = TARGETS[program].get(column)
        rows.append(
            [
                COLUMNS[column].title,
                *_cells(clocks["cpu"]),
                *_cells(clocks["wall"]),
                str(clocks["cpu"].count),
                "" if target is None else verdict(clocks["cpu"].median, target, ".2f"),
            ]
        )
    what = (PROGRAMS[program].__doc__ or "").strip()
    head = f"### {program}, {measured['bare']:.1f} ms a step\n\n{what}\n\n"
    return head + markdown(heads, rows)


def _cells(estimate: Estimate) -> list[str]:
    return [
        f"**{estimate.median:.3f}**",
        f"{estimate.low:.3f} to {estimate.high:.3f}",
        f"{estimate.least:.2f} to {estimate.most:.2f}",
    ]


def _worker(program: str, column: str, pairs: int, steps: int) -> list[Any]:
    one_thread()
    other = COLUMNS[column]
    step = in_a_library(program) if other.library else PROGRAMS[program]()
    # Both halves run equally deep in the stack: what differs is the watch alone.
    rows = in_pairs(
        lambda more: measure_block(step, COLUMNS["bare"].watch, steps, other.frames + more),
        lambda more: measure_block(step, other.watch, steps, other.frames + more),
        pairs,
    )
    return [[astuple(one), astuple(two)] for one, two in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("column", choices=COLUMNS)
    parser.add_argument("pairs", type=int)
    parser.add_argument("steps", type=int)
    options = parser.parse_args()
    print(json.dumps(_worker(options.program, options.column, options.pairs, options.steps)))
