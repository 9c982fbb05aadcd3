"""What one recorded call costs in microseconds: where the ratios of the steps come from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.machine import one_thread, run_module
from benchmarks.pairs import Sample, differences, in_pairs, measure_block
from benchmarks.programs import COLUMNS
from benchmarks.tables import markdown

MODULE = "benchmarks.calls"
WATCHES = ("empty-mode", "record", "install")


def _node() -> Callable[[], object]:
    x = torch.ones(2, requires_grad=True)
    return lambda: x * 2.0


def _no_node() -> Callable[[], object]:
    x = torch.ones(2)
    return lambda: x * 2.0


def _ask() -> Callable[[], object]:
    x = torch.ones(2)
    return lambda: x.shape


def _write() -> Callable[[], object]:
    x = torch.ones(2, requires_grad=True)

    def write() -> None:
        with torch.no_grad():
            x.add_(0.0)

    return write


def _backward() -> Callable[[], object]:
    x = torch.ones((), requires_grad=True)

    def backward() -> None:
        (x * 2.0).backward()

    return backward


ACTIONS: dict[str, tuple[str, Callable[[], Callable[[], object]]]] = {
    "node": ("an operation that makes a node", _node),
    "no-node": ("an operation that makes none", _no_node),
    "ask": ("reading `x.shape`", _ask),
    "write": ("`with no_grad(): x.add_()`", _write),
    "backward": ("an operation and `backward()`", _backward),
}


def measure(pairs: int, times: int) -> dict[str, Any]:
    """Action -> bare microseconds, and watch -> seconds added, by ``cpu`` and ``wall``."""
    result: dict[str, Any] = {action: {} for action in ACTIONS}
    for watch in WATCHES:
        measured = run_module(MODULE, watch, str(pairs), str(times))
        for action, rows in measured.items():
            samples = [(Sample(*one), Sample(*other)) for one, other in rows]
            result[action][watch] = differences(samples)
            result[action]["bare"] = 1e6 * median(one.cpu for one, _ in samples)
    return result


def table(measured: dict[str, Any]) -> str:
    """What each watch adds to a call."""
    heads = ["call", "bare, µs", *(f"{COLUMNS[w].title} adds, µs" for w in WATCHES)]
    rows = [
        [
            ACTIONS[action][0],
            f"{row['bare']:.2f}",
            *(f"{1e6 * row[watch]['cpu'].median:.2f}" for watch in WATCHES),
        ]
        for action, row in measured.items()
    ]
    return markdown(heads, rows)


def _worker(watch: str, pairs: int, times: int) -> dict[str, Any]:
    one_thread()
    result = {}
    for action, (_, prepare) in ACTIONS.items():
        step = prepare()
        rows = in_pairs(
            partial(measure_block, step, COLUMNS["bare"].watch, times),
            partial(measure_block, step, COLUMNS[watch].watch, times),
            pairs,
        )
        result[action] = [[astuple(one), astuple(two)] for one, two in rows]
    return result


if __name__ == "__main__":
    print(json.dumps(_worker(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
