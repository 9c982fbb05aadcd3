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


def measure(programs: list[str], columns: list[str], pairs: int, steps: int) -> dict[str, Any]:
    """Run every program under every watch, each combination in a process of its own.

    Args:
        programs, columns: names in `PROGRAMS` and `COLUMNS`.
        pairs: for recording; the other columns have a share of it.
        steps: timed in each half of a pair.

    Returns:
        program -> ``bare`` (ms a step) and column -> ratios by ``wall`` and ``cpu``.
    """
    result: dict[str, Any] = {}
    for program in programs:
        row: dict[str, Any] = {}
        bare: list[float] = []
        for column in columns:
            count = max(1, round(pairs * COLUMNS[column].share))
            rows = run_module(MODULE, program, column, str(count), str(steps))
            samples = [(Sample(*one), Sample(*other)) for one, other in rows]
            bare += [one.cpu for one, _ in samples]
            row[column] = ratios(samples)
        result[program] = {"bare": 1_000 * median(bare), "columns": row}
    return result


def tables(measured: dict[str, Any]) -> list[str]:
    """The tables of ratios, one by each clock, and how they stand to the targets."""
    parts = []
    columns = list(next(iter(measured.values()))["columns"])
    names = {
        "cpu": "computing time (`time.process_time`), which other jobs on the machine disturb less",
        "wall": "elapsed time (`time.perf_counter`)",
    }
    for clock, name in names.items():
        rows = []
        for program, row in measured.items():
            cells = [program, f"{row['bare']:.1f}"]
            for column in columns:
                estimate: Estimate = row["columns"][column][clock]
                cells.append(_cell(estimate, TARGETS[program].get(column)))
            rows.append(cells)
        heads = ["program", "bare step, ms", *(COLUMNS[c].title for c in columns)]
        parts.append(f"Ratio to the bare step, {name}:\n\n" + markdown(heads, rows))
    parts.append(
        "Each cell: the median over pairs, [95 % bootstrap interval of the median], "
        "(least to most of the pairs), the target where there is one."
    )
    return parts


def _cell(estimate: Estimate, target: float | None) -> str:
    text = (
        f"**{estimate.median:.3f}** [{estimate.low:.3f}, {estimate.high:.3f}] "
        f"({estimate.least:.2f} to {estimate.most:.2f})"
    )
    return text + ("" if target is None else f" {verdict(estimate.median, target, '.2f')}")


def _worker(program: str, column: str, pairs: int, steps: int) -> list[Any]:
    one_thread()
    other = COLUMNS[column]
    step = in_a_library(program) if other.library else PROGRAMS[program]()
    # Both halves run equally deep in the stack: what differs is the watch alone.
    rows = in_pairs(
        lambda more: measure_block(step, COLUMNS["bare"].watch, other.frames + more, steps),
        lambda more: measure_block(step, other.watch, other.frames + more, steps),
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
