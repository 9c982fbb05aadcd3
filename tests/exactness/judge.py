"""Compares the line that onegraph recorded for each node with anomaly mode's own traceback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from onegraph.recorder.examination import Examination
from onegraph.recorder.names import Names
from onegraph.recorder.session import Recorder
from onegraph.watch import Use

_ENTRY = re.compile(r'\s*File "(.*)", line (\d+), in ')


class Nameless(Names):
    """No names: looking for them takes far longer than judging lines."""

    def __init__(self) -> None:
        self.tensors, self.nodes, self.modules, self.optimizers = [], [], [], []


@dataclass
class Tally:
    """How many nodes have the right line, no line, or a wrong one."""

    right: int = 0
    unknown: int = 0
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.right += other.right
        self.unknown += other.unknown
        self.wrong += other.wrong
        self.missed += other.missed
        return self

    def __str__(self) -> str:
        return f"{self.right} right, {self.unknown} unknown, {len(self.wrong)} wrong"


def judge(program: Callable[[], Any]) -> Tally:
    """Run a program under recording and anomaly mode, and judge every node it returns.

    Args:
        program: returns tensors and graph nodes, nested as it likes; all that lies below is judged.
    """
    use = Use(lines=True)
    session = use.begin()
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            nodes = roots_of(program())
            tally = compare(session.recorder, nodes)
    finally:
        use.end()
    return tally


def roots_of(result: Any) -> list[Any]:
    """The graph nodes of every tensor in a nested result, and the nodes in it."""
    nodes = []
    for leaf in tree_leaves(result):
        if isinstance(leaf, torch.Tensor):
            if leaf.requires_grad and leaf.grad_fn is not None:
                nodes.append(leaf.grad_fn)
        elif isinstance(leaf, torch.autograd.graph.Node):
            nodes.append(leaf)
    return nodes


def compare(recorder: Recorder, roots: Iterable[Any]) -> Tally:
    """Judge every node below the roots against the traceback that anomaly mode left on it."""
    tally = Tally()
    examination = Examination(recorder, roots, [], recorder.ordinal + 1, None, Nameless())
    trace = examination.trace(None)
    for position, node in enumerate(examination.walk.nodes):
        truth = _truth(recorder, node)
        if trace.graph.number[position] < 0 or truth is None:
            # Leaves have no number, and are named by their parameter instead.
            continue
        site = trace.graph.site[position]
        made = f"made at {truth[0]}:{truth[1]}" if truth else "made by no line of the user's"
        if site < 0:
            tally.unknown += 1
            tally.missed.append(f"{node.name()}: unknown, but {made}")
            continue
        head = trace.sites[site].frames[0]
        if truth and (head.file, head.line) == (examination.places.file(truth[0]), truth[1]):
            tally.right += 1
        else:
            tally.wrong.append(f"{node.name()}: said {head.file}:{head.line}, but {made}")
    return tally


def _truth(recorder: Recorder, node: Any) -> tuple[str, int] | tuple[()] | None:
    """The innermost user frame in anomaly mode's traceback, () without one, None unless it told."""
    entries = node.metadata.get("traceback_")
    if entries is None:
        return None
    for entry in reversed(entries):
        match = _ENTRY.match(entry)
        if match and recorder.users[match[1]]:
            return match[1], int(match[2])
    return ()
