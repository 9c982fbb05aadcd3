"""`make bench`: every table of what onegraph costs, in markdown, and as JSON on demand."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine

# Also for what this process itself asks of torch.
os.environ.update(machine.ONE_THREAD)

from benchmarks import calls, huge, memory, startup, steps
from benchmarks.pairs import Estimate
from benchmarks.programs import COLUMNS, PROGRAMS

TABLES = ("steps", "calls", "startup", "huge", "memory")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Args:
        pairs: of a recorded step; `install`, which needs a finer answer, gets four times as many.
        steps: timed in each half of a pair.
        calls: pairs of the table of single calls, and how often each call is timed in one.
        runs: pairs of processes that are started.
        nodes: of the graphs that are explained.
        turns: of the training loop whose memory is watched.
    """

    pairs: int = 48
    steps: int = 8
    calls: tuple[int, int] = (12, 1_000)
    runs: int = 15
    nodes: int = huge.NODES
    turns: int = memory.STEPS


EFFORTS = {
    "full": Effort(),
    "quick": Effort(12, 4, (4, 300), 5, 200_000, 5_000),
    # For tests: everything runs, and no number means anything.
    "token": Effort(1, 1, (1, 5), 1, 2_000, 60),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the tables as they are ready, and write the JSON."""
    options = _options(arguments)
    effort = EFFORTS[options.effort]
    results: dict[str, Any] = {"machine": machine.description(), "effort": options.effort}
    _say(_heading(results["machine"]))
    if "steps" in options.tables:
        _say("## A training step", steps.INTRODUCTION)
        results["steps"] = {}
        for program in options.programs:
            measured = steps.measure(program, options.columns, effort.pairs, effort.steps)
            results["steps"][program] = measured
            _say(steps.table(program, measured))
    if "calls" in options.tables:
        results["calls"] = calls.measure(*effort.calls)
        _say("## A single call", calls.table(results["calls"]))
    if "startup" in options.tables:
        results["startup"] = startup.measure(effort.runs)
        _say("## Starting a program", startup.table(results["startup"]))
    if "huge" in options.tables:
        results["huge"] = huge.measure(effort.nodes, options.shapes)
        _say("## Explaining a huge graph", huge.table(results["huge"]))
    if "memory" in options.tables:
        results["memory"] = memory.measure(effort.turns)
        _say("## Memory over a long run", memory.table(results["memory"]))
    if options.json:
        text = json.dumps(results, indent=1, default=Estimate.as_dict)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost", description=__doc__)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", dest="effort", action="store_const", const="quick", help="a first impression"
    )
    effort.add_argument("--effort", choices=EFFORTS, help="how much to measure (default: full)")
    parser.add_argument("--json", metavar="FILE", help="also write every number there")
    for name, known in (
        ("tables", TABLES),
        ("programs", tuple(PROGRAMS)),
        ("columns", tuple(COLUMNS)),
        ("shapes", tuple(huge.SHAPES)),
    ):
        parser.add_argument(
            f"--{name}",
            type=_some_of(known),
            default=list(known),
            metavar="NAME,...",
            help="only these of: " + ", ".join(known),
        )
    parser.set_defaults(effort="full")
    return parser.parse_args(arguments)


def _some_of(known: tuple[str, ...]) -> Any:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return names


def _heading(found: dict[str, Any]) -> str:
    return (
        "# What onegraph costs\n\n"
        f"{found['cpu']}, {found['cores']} cores, {found['system']}; Python {found['python']}, "
        f"torch {found['torch']}, one thread; onegraph {found['onegraph']}. "
        f"Load of the machine at the start: {found['load']}.\n\n"
        "Ratios are medians over pairs of runs that alternate in one process."
    )


def _say(*parts: str) -> None:
    print(*parts, sep="\n\n", end="\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
