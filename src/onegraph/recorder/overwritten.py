"""Finds which tensor a changed saved tensor is, and which lines wrote to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

from onegraph.recorder.examination import Examination, library_name
from onegraph.recorder.names import Found
from onegraph.recorder.torchapi import CHANGED_MARK
from onegraph.recorder.walk import StateReader
from onegraph.recorder.writes import (
    GRAD_OFF,
    REQUIRES_GRAD,
    STEP,
    Written,
    has_history,
    storage_of,
)
from onegraph.trace import Overwritten, Write

# What nodes call the output of their own forward where they save it.
_RESULTS = ("result", "output")
# Which input they mean by a name, counted from the front or from the end.
_SLOTS = {"self": 0, "input": 0, "mat1": 1, "batch1": 1, "weight": 1,
          "other": -1, "mat2": -1, "batch2": -1}  # fmt: skip


class Told(NamedTuple):
    """What torch's message says of a changed tensor; None where it does not."""

    shape: tuple[int, ...] | None
    now: int | None
    saved: int | None


def told(message: str) -> Told:
    """Read a message."""
    shape = re.search(r"\[[\w.]+ \[([\d, ]*)\]\]", message)
    versions = re.search(r"is at version (\d+); expected version (\d+)", message)
    return Told(
        tuple(int(n) for n in shape.group(1).split(",") if n.strip()) if shape else None,
        int(versions.group(1)) if versions else None,
        int(versions.group(2)) if versions else None,
    )


def overwritten(seen: Examination, message: str) -> Overwritten | None:
    """The saved tensor that torch's message speaks of, and what wrote to it."""
    said = told(message)
    found = _holder(seen, said)
    if found is None:
        return None
    position, attribute = found
    since = max(seen.graph.epoch[position], 0)
    number, thread = seen.graph.number[position], seen.graph.thread[position]
    writes = [
        write
        for write in seen.recorder.writes.since(since)
        if write.thread != thread or write.number > number
    ]
    storage, certain = _storage(seen, position, attribute, said, writes)
    mine = [write for write in writes if write.storage == storage] if storage else []
    if said.now is not None and said.saved is not None:
        # Writes between the making of the node and its saving the tensor cannot be; but a storage
        # may have been another tensor's before.
        mine = mine[-(said.now - said.saved) :] if said.now > said.saved else mine
    names, kind, transposed = _identity(seen, position, storage, said)
    return Overwritten(
        node=position,
        kind=kind,
        names=names,
        attribute=attribute,
        shape=said.shape or (),
        transposed=transposed,
        version_saved=said.saved,
        version_now=said.now,
        writes=tuple(_gathered(seen, position, mine, writes)),
        certain=certain,
    )


def _holder(seen: Examination, said: Told) -> tuple[int, str] | None:
    """(node, attribute) of the first node, as the engine goes, that says the same of a tensor."""
    order = sorted(range(len(seen.graph)), key=lambda p: -seen.walk.number[p])
    readers: dict[type, StateReader] = {}
    best: tuple[int, str] | None = None
    for position in order:
        node = seen.walk.nodes[position]
        reader = readers.setdefault(type(node), StateReader(node))
        for attribute, text in _changed(node, reader):
            if told(text) == said:
                return position, attribute
            best = best or (position, attribute)
    return best


def _changed(node: Any, reader: StateReader) -> Iterator[tuple[str, str]]:
    """(attribute, torch's words) of the saved tensors of a node that were changed."""
    if isinstance(node, BackwardCFunction):
        try:
            if all(raw.unpack_hook is None for raw in node._raw_saved_tensors):
                node.saved_tensors  # noqa: B018
        except RuntimeError as error:
            if CHANGED_MARK in str(error):
                yield "", str(error)
        except Exception:
            pass
        return
    for raw_name, name in reader.names:
        try:
            raw = getattr(node, raw_name)
            parts = raw if isinstance(raw, (list, tuple)) else [raw]
            if any(part is not None and part.unpack_hook is not None for part in parts):
                continue
            getattr(node, name)
        except RuntimeError as error:
            if CHANGED_MARK in str(error):
                yield name.removeprefix("_saved_"), str(error)
        except Exception:
            continue


def _storage(
    seen: Examination, position: int, attribute: str, said: Told, writes: Sequence[Written]
) -> tuple[int, bool]:
    """(the storage of the changed tensor, whether that is certain), 0 where it cannot be told."""
    written = {write.storage for write in writes}
    for _, variable in _leaves_under(seen, position):
        if storage_of(variable) in written and _fits(variable, said):
            return storage_of(variable), True
    live = [f for f in seen.names.tensors if storage_of(f.value) in written]
    live = [f for f in live if said.now is None or f.value._version == said.now]
    # A write without gradients leaves a tensor its node: the very one, or one that leads to it.
    own = {
        storage_of(f.value)
        for f in live
        if _at(seen, f.value) in _makers(seen, position, attribute)
    }
    if len(own) == 1:
        return own.pop(), True
    for exact in (True, False):
        storages = {storage_of(f.value) for f in live if _fits(f.value, said) or not exact}
        if len(storages) == 1:
            return storages.pop(), True
        related = [s for s in storages if _wrote_to_input(seen, position, attribute, s, writes)]
        if len(related) == 1:
            return related[0], True
    related = [s for s in written if _wrote_to_input(seen, position, attribute, s, writes)]
    if len(related) == 1:
        return related[0], True
    if said.now is not None and said.saved is not None:
        # No live name: the one storage that was written as often as the version says.
        counts: dict[int, int] = {}
        for write in writes:
            counts[write.storage] = counts.get(write.storage, 0) + 1
        fitting = [s for s, count in counts.items() if count == said.now - said.saved]
        if len(fitting) == 1:
            return fitting[0], False
    return 0, False


def _makers(seen: Examination, position: int, attribute: str) -> set[tuple[int, int]]:
    """(node, output) of the tensors that a node may have saved under a name."""
    if attribute in _RESULTS:
        return {(position, 0)}
    edges = list(seen.graph.edges(position))
    inputs = seen.graph.start[position + 1] - seen.graph.start[position]
    slot = _SLOTS.get(attribute)
    named = [edge for edge in edges if slot is not None and edge[0] == slot % inputs]
    return {(child, output) for _, child, output in named or edges}


def _at(seen: Examination, tensor: torch.Tensor) -> tuple[int, int]:
    """(node, output) that a tensor is in the graph, (-1, 0) for one outside."""
    node = tensor.grad_fn
    return (-1, 0) if node is None else (seen.walk.index.get(node, -1), int(tensor.output_nr))


def _wrote_to_input(
    seen: Examination, position: int, attribute: str, storage: int, writes: Sequence[Written]
) -> bool:
    """Whether a write made a node of this graph that follows what made the saved tensor."""
    graph = seen.graph
    makers = _makers(seen, position, attribute)
    by_number = {(graph.thread[p], graph.number[p]): p for p in range(len(graph))}
    for write in writes:
        if write.storage != storage:
            continue
        made = by_number.get((write.thread, write.number - 1))
        if made is not None and any((c, o) in makers for _, c, o in graph.edges(made)):
            return True
    return False


def _fits(tensor: torch.Tensor, said: Told) -> bool:
    own = tuple(tensor.shape)
    return said.shape is None or own == said.shape or own[::-1] == said.shape


def _identity(
    seen: Examination, position: int, storage: int, said: Told
) -> tuple[tuple[str, ...], Literal["parameter", "buffer", "leaf", "tensor"], bool]:
    """(names, what the tensor is, whether it was saved transposed)."""
    if not storage:
        return (), "tensor", False
    for leaf, variable in _leaves_under(seen, position):
        if storage_of(variable) == storage:
            name = seen.graph.leaves.get(leaf)
            others = _names_of(seen, storage, said)
            names = tuple(dict.fromkeys((*([name] if name else []), *others)))
            kind: Literal["parameter", "leaf"] = (
                "parameter" if isinstance(variable, torch.nn.Parameter) else "leaf"
            )
            return names, kind, tuple(variable.shape) != said.shape
    name = seen.storages.get(storage)
    if name is not None:
        return tuple(dict.fromkeys((name, *_names_of(seen, storage, said)))), "parameter", False
    names = _names_of(seen, storage, said)
    return names, "buffer" if storage in _buffers(seen) else "tensor", False


def _names_of(seen: Examination, storage: int, said: Told) -> tuple[str, ...]:
    """Live names of a storage: of the tensor of the very shape first, then the nearest."""

    def far(found: Found) -> tuple[bool, int, int]:
        return (not _fits(found.value, said), found.steps, len(found.name))

    mine = [f for f in seen.names.tensors if storage_of(f.value) == storage]
    # Not the optimizer's list of what it trains, unless nothing else is known.
    known = [f for f in mine if ".param_groups[" not in f.name] or mine
    return tuple(dict.fromkeys(f.name for f in sorted(known, key=far)))[:4]


def _buffers(seen: Examination) -> set[int]:
    return {
        storage_of(buffer)
        for _, module in seen.names.modules
        for buffer in vars(module).get("_buffers", {}).values()
    }


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


def _gathered(
    seen: Examination, position: int, mine: Sequence[Written], writes: Sequence[Written]
) -> Iterator[Write]:
    """The writes to one storage, each with how many others its expression wrote to then."""
    groups: dict[tuple[int, int], list[Written]] = {}
    # Memory that something with history shares: to write to it by another name is to go behind.
    aliased = {storage_of(f.value) for f in seen.names.tensors if has_history(f.value)}
    aliased |= {storage_of(variable) for _, variable in _leaves_under(seen, position)}
    if not any(storage_of(f.value) == w.storage for w in mine for f in seen.names.tensors):
        aliased |= {write.storage for write in mine}
    for write in mine:
        groups.setdefault((write.epoch, write.site), []).append(write)
    for (epoch, number), members in groups.items():
        together = {w.storage for w in writes if (w.epoch, w.site) == (epoch, number)}
        site = seen.site(number)
        first = members[0]
        yield Write(
            site=site if site >= 0 else None,
            step=epoch,
            op=first.op,
            tensors=len(together),
            silent=bool(first.flags & GRAD_OFF)
            or (not first.flags & REQUIRES_GRAD and first.storage in aliased),
            step_of_optimizer=bool(first.flags & STEP),
            library=None if seen.recorder.users[first.file] else library_name(first.file),
        )
