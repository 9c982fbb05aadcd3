"""What one recorded call costs in microseconds: where the ratios of the steps come from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import torch

from benchmarks.machine import one_thread, run_module
from benchmarks.pairs import Sample, differences, in_pairs, measure_block
from benchmarks.programs import COLUMNS
from benchmarks.tables import markdown

MODULE = "benchmarks.calls"
WATCHES = ("empty-mode", "record", "install")
TIMES = 1_000


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


def measure(pairs: int, times: int = TIMES) -> dict[str, Any]:
    """Action -> bare microseconds, and watch -> microseconds added, by ``cpu`` and ``wall``."""
    result: dict[str, Any] = {}
    for action in ACTIONS:
        row: dict[str, Any] = {}
        for watch in WATCHES:
            rows = run_module(MODULE, action, watch, str(pairs), str(times))
            samples = [(Sample(*one), Sample(*other)) for one, other in rows]
            row[watch] = differences(samples)
            row["bare"] = 1e6 * min(one.cpu for one, _ in samples)
        result[action] = row
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


def _worker(action: str, watch: str, pairs: int, times: int) -> list[Any]:
    one_thread()
    step = ACTIONS[action][1]()
    rows = in_pairs(
        lambda more: measure_block(step, COLUMNS["bare"].watch, more, times),
        lambda more: measure_block(step, COLUMNS[watch].watch, more, times),
        pairs,
    )
    return [[astuple(one), astuple(two)] for one, two in rows]


if __name__ == "__main__":
    print(json.dumps(_worker(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
