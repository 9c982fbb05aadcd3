"""Explaining a failure of a huge graph: how long it takes, and that the process outlives it.

A graph of C++ nodes is destroyed iteratively, however deep. One whose nodes have Python objects is
destroyed recursively, which ends the process. So each case drops the graph and the explanation in
both orders, builds and frees another graph, and must end with status 0.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

import onegraph
from benchmarks.machine import Ended, children_seconds, one_thread, peak_mb, run_module
from benchmarks.tables import markdown, verdict

MODULE = "benchmarks.huge"
TARGET_S = 10.0
NODES = 1_000_000
WATCHES = ("record", "install")
ORDERS = ("graph-last", "explanation-last")


# -- graphs of about so many nodes, each failing where an earlier backward has freed a part --------


def chain(nodes: int) -> torch.Tensor:
    """A state carried over without detach, in two steps of half the nodes: depth itself."""
    weight = torch.ones(2, requires_grad=True)
    state = torch.ones(2)
    for turn in range(2):
        for _ in range(nodes // 2):
            state = state * weight
        if turn == 0:
            state.sum().backward()
    return state.sum()


def wide(nodes: int) -> torch.Tensor:
    """Very many short branches from one tensor whose graph is gone: breadth, and many bridges."""
    weight = torch.ones(2, requires_grad=True)
    scale = weight.exp()
    scale.sum().backward()
    return torch.stack([(scale * k).sin() for k in range(nodes // 2)]).sum()


def total(nodes: int) -> torch.Tensor:
    """A running sum of losses, each of which went backward on its own: very many calls."""
    weight = torch.ones(2, requires_grad=True)
    running = torch.zeros(())
    for _ in range(nodes // 10):
        x = weight
        for _ in range(8):
            x = x * weight
        loss = x.sum()
        loss.backward()
        running = running + loss
    return running


SHAPES: dict[str, Callable[[int], torch.Tensor]] = {"chain": chain, "wide": wide, "total": total}


def measure(nodes: int = NODES, shapes: list[str] | None = None) -> list[dict[str, Any]]:
    """Explain each shape under each watch, in both orders, each in a process of its own."""
    result = []
    for shape in shapes or list(SHAPES):
        bare = run_module(MODULE, shape, "bare", "graph-last", str(nodes))
        for watch in WATCHES:
            for order in ORDERS:
                row = {"shape": shape, "watch": watch, "order": order, "nodes": nodes, "exit": 0}
                try:
                    row.update(run_module(MODULE, shape, watch, order, str(nodes)))
                except Ended as ended:
                    row["exit"] = ended.status
                result.append({**row, "bare": bare})
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """The time from `backward` to the explanation, beyond a bare failing one, and how it ended."""
    heads = ["graph", "watch", "dropped last", "built in, s", "fails after, s", "diagnose, s"]
    heads += ["explained in, s", "of computing time, s", "cause", "peak memory, MB", "exit"]
    return markdown(heads, [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [
        f"{row['shape']}, {row['nodes']:,} nodes",
        row["watch"],
        row["order"].partition("-")[0],
    ]
    if row["exit"]:
        return [*cells, *("" for _ in range(7)), f"DIED: {row['exit']}"]
    bare = row["bare"]
    return [
        *cells,
        f"{row['build'][0]:.1f} (bare {bare['build'][0]:.1f})",
        f"{row['fails'][0]:.1f} (bare {bare['fails'][0]:.1f})",
        f"{row['diagnose'][0]:.1f}",
        _seconds(row, 0),
        _seconds(row, 1),
        row["cause"],
        f"{row['peak']:.0f} (bare {bare['peak']:.0f})",
        "0",
    ]


def _seconds(row: dict[str, Any], clock: int) -> str:
    spent = row["fails"][clock] + row["diagnose"][clock] - row["bare"]["fails"][clock]
    return f"**{spent:.1f}** " + verdict(spent, TARGET_S)


def _clocks() -> tuple[float, float]:
    """Elapsed time, and computing time of this process and of the children it waited for."""
    return time.perf_counter(), time.process_time() + children_seconds()


def _since(start: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = _clocks()
    return wall - start[0], cpu - start[1]


def _worker(shape: str, watch: str, order: str, nodes: int) -> dict[str, Any]:
    one_thread()
    if watch == "install":
        onegraph.install()
    with onegraph.record() if watch == "record" else nullcontext():
        start = _clocks()
        loss = SHAPES[shape](nodes)
        build = _since(start)
        start = _clocks()
        error: BaseException | None = None
        try:
            loss.backward()
        except RuntimeError as raised:
            error = raised
        fails = _since(start)
        assert error is not None, "this graph must fail"
        start = _clocks()
        report = None if watch == "bare" else onegraph.diagnose(error)
        diagnose = _since(start)
        cause = report.findings[0].cause if report is not None and report.findings else "none"
        # The traceback leads to the frames that hold the graph.
        error.__traceback__ = None
        if order == "graph-last":
            del report, error
            gc.collect()
            _go_on()
            del loss
        else:
            del loss
            gc.collect()
            _go_on()
            del report, error
        gc.collect()
        _go_on()
    _go_on()
    return {
        "build": build,
        "fails": fails,
        "diagnose": diagnose,
        "cause": cause,
        "peak": peak_mb(),
    }


def _go_on() -> None:
    """Train a little more."""
    weight = torch.ones((), requires_grad=True)
    x = weight
    for _ in range(2_000):
        x = x * weight
    x.backward()
    assert weight.grad is not None
    assert weight.grad.item() == 2_001


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("watch", choices=("bare", *WATCHES))
    parser.add_argument("order", choices=ORDERS)
    parser.add_argument("nodes", type=int)
    options = parser.parse_args()
    print(json.dumps(_worker(options.shape, options.watch, options.order, options.nodes)))
