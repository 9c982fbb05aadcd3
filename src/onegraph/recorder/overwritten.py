"""Finds which leaf a changed saved tensor is, and which lines wrote to it."""

from __future__ import annotations

import re

import torch

from onegraph.recorder.examination import Examination
from onegraph.recorder.walk import StateReader
from onegraph.trace import Overwritten, State, Write


def overwritten(seen: Examination, message: str) -> Overwritten | None:
    """The saved tensor that torch's message speaks of, when it is a leaf or a view of one."""
    shape = re.search(r"\[torch\.\w+ \[([\d, ]*)\]\]", message)
    sizes = tuple(int(n) for n in shape.group(1).split(",") if n.strip()) if shape else ()
    versions_seen = re.search(r"is at version (\d+); expected version (\d+)", message)
    graph = seen.graph
    order = sorted(
        (p for p in range(len(graph)) if graph.state[p] == State.OVERWRITTEN),
        key=lambda p: -graph.number[p],
    )
    if not order:
        reader: dict[type, StateReader] = {}
        for p, node in sorted(
            enumerate(seen.walk.nodes), key=lambda item: -seen.walk.number[item[0]]
        ):
            read = reader.setdefault(type(node), StateReader(node))
            if read(node) is State.OVERWRITTEN:
                order = [p]
                break
    for position in order:
        for leaf, variable in _leaves_under(seen, position):
            own = tuple(variable.shape)
            if own == sizes or own[::-1] == sizes:
                return Overwritten(
                    node=position,
                    name=seen.graph.leaves.get(leaf) or None,
                    shape=sizes,
                    transposed=own != sizes,
                    version_saved=int(versions_seen.group(2)) if versions_seen else None,
                    version_now=int(versions_seen.group(1)) if versions_seen else None,
                    writes=_writes(seen, variable, position),
                )
    if order:
        return Overwritten(order[0], None, sizes, False, None, None, ())
    return None


def _leaves_under(seen: Examination, position: int) -> list[tuple[int, torch.Tensor]]:
    """Leaf tensors that reach a node directly or through a view."""
    result = []
    for _, child, _ in seen.graph.edges(position):
        steps = 0
        while steps < 4:
            variable = getattr(seen.walk.nodes[child], "variable", None)
            if isinstance(variable, torch.Tensor):
                result.append((child, variable))
                break
            following = [other for _, other, _ in seen.graph.edges(child)]
            if len(following) != 1:
                break
            child = following[0]
            steps += 1
    return result


def _writes(seen: Examination, variable: torch.Tensor, node: int) -> tuple[Write, ...]:
    """The writes to a leaf since ``node`` saved it, gathered by line and engine call."""
    recorder, graph = seen.recorder, seen.graph
    members = {
        number: key if isinstance(key, tuple) else (key,)
        for key, number in recorder.targets.items()
    }
    since, thread = max(graph.epoch[node], 0), graph.thread[node]
    together: dict[tuple[int, int], set[int]] = {}
    for tape in recorder.all_tapes():
        for target, site, epoch, number in tape.writes(since):
            if tape.index != thread or number > graph.number[node]:
                together.setdefault((epoch, seen.site(site)), set()).update(members[target])
    return tuple(
        Write(site if site >= 0 else None, epoch, "", len(written))
        for (epoch, site), written in sorted(together.items())
        if id(variable) in written
    )
