"""Finds graphs that are kept alive and grow from step to step.

At a few engine calls, further and further apart, the variables of the running functions are looked
at: what still leads back to the same early step each time, while the steps go on, keeps growing.
"""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from onegraph.recorder.names import plain_dict
from onegraph.recorder.sites import UserFiles
from onegraph.recorder.torchapi import node_number

OBJECTS = 4_000
ITEMS = 4_000
NODES, SHORT = 3_000, 48
PLACES = 16
# So many looks in a row must see the same early step, and so many steps lie between.
LOOKS, STEPS = 3, 6
_DULL = (ModuleType, FunctionType, BuiltinFunctionType, type, str, bytes, int, float, type(None))
# What no backward ever used counts when it is so many graphs apart from one another.
UNUSED = 8


def due(turn: int) -> bool:
    """Whether to look in a turn of an engine call's line: in 4, 6, 8, 12, 16, 24, 32 ..."""
    return turn >= 4 and (
        not turn & (turn - 1) or (turn % 3 == 0 and not turn // 3 & (turn // 3 - 1))
    )


@dataclass(frozen=True, slots=True)
class Held:
    """Tensors with history under one name."""

    name: str
    tensors: list[torch.Tensor]
    container: bool


@dataclass(slots=True)
class Growing:
    """A name that was seen to hold on to more and more.

    Args:
        number: of the latest tensor's node.
        tensors: how many it holds; one for a running total.
        since, until: the engine calls between which all that it holds was made.
    """

    name: str
    number: int
    container: bool
    tensors: int
    since: int
    until: int
    looks: int = 1
    nodes: int = 0
    bytes: int = 0
    per: int = 1
    sample: Any = field(default=None, repr=False)


class Growth:
    """The looks of one recording."""

    def __init__(self) -> None:
        self.seen: dict[str, Growing] = {}
        self.found: dict[str, Growing] = {}

    def look(
        self, frames: Sequence[FrameType], users: UserFiles, starts: Sequence[int]
    ) -> list[Growing]:
        """Look once; return what is now known to grow and was not before.

        Args:
            starts: the thread's sequence number at each engine call so far.
        """
        now = len(starts)
        current: dict[str, Growing] = {}
        fresh = []
        for held in search(frames, users):
            numbers = [node_number(t.grad_fn) for t in held.tensors]
            newest = max(numbers)
            recent = starts[-2] if now > 1 else 0
            below = numbers if held.container else _below(held.tensors[0], recent)
            steps = {bisect_right(starts, number) for number in below}
            since, until = min(steps), max(steps)
            self._revoke(held, since)
            if until - since < 2:
                continue
            entry = Growing(held.name, newest, held.container, len(numbers), since, until)
            before = self.seen.get(held.name)
            if before is not None and before.since == since and until > before.until:
                entry.looks = before.looks + 1
            current[held.name] = entry
            # What is collected once an epoch comes at even distances, and lately.
            period = _period(steps) if held.container else 1
            long = until - since >= STEPS and now - until <= max(2, 2 * period)
            # An old graph that ever new results lead to does not grow: few steps have a part in it.
            dense = len(steps) * 2 * period >= until - since
            if entry.looks >= LOOKS and long and dense and held.name not in self.found:
                self.found[held.name] = entry
                entry.sample, entry.per = held.tensors, until - since + 1
                fresh.append(entry)
            elif held.name in self.found and entry.looks >= LOOKS:
                known = self.found[held.name]
                known.until, known.tensors, known.number = until, len(numbers), newest
        self.seen = current
        return fresh

    def unused(self, users: UserFiles, starts: Sequence[int]) -> list[Growing]:
        """What the program holds at its end that was made after its last engine call."""
        found = []
        for held in search((), users):
            numbers = [node_number(t.grad_fn) for t in held.tensors]
            self._revoke(held, bisect_right(starts, min(numbers)))
            if not held.container or len(set(numbers)) < UNUSED or held.name in self.found:
                continue
            if min(numbers) < (starts[-1] if starts else 0) or not _apart(held.tensors):
                continue
            entry = Growing(held.name, max(numbers), True, len(numbers), len(starts), len(starts))
            entry.sample, entry.per = held.tensors, len(numbers)
            self.found[held.name] = entry
            found.append(entry)
        return found

    def _revoke(self, held: Held, since: int) -> None:
        """Take back what was said of a container that has begun to drop its oldest."""
        known = self.found.get(held.name)
        if known is not None and known.container and since > known.since:
            del self.found[held.name]


def _period(steps: set[int]) -> int:
    """The largest distance between neighbours, where there are enough of them; else 1."""
    ordered = sorted(steps)
    return max(b - a for a, b in pairwise(ordered)) if len(ordered) > LOOKS else 1


def search(frames: Sequence[FrameType], users: UserFiles) -> Iterator[Held]:
    """Tensors with history that variables of running functions and of modules lead to."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any, int]] = deque()
    for frame in frames:
        if users[frame.f_code.co_filename]:
            waiting.extend((name, value, 0) for name, value in list(frame.f_locals.items()))
    for scope in _user_modules(users):
        waiting.extend((n, v, 0) for n, v in list(scope.items()) if not n.startswith("__"))
    count = 0
    while waiting and count < OBJECTS:
        name, value, depth = waiting.popleft()
        count += 1
        if isinstance(value, torch.Tensor):
            if value.grad_fn is not None:
                yield Held(name, [value], False)
            elif value.is_leaf and value.grad is not None and value.grad.grad_fn is not None:
                yield Held(f"{name}.grad", [value.grad], False)
            continue
        if isinstance(value, _DULL) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (list, tuple, deque, dict)):
            parts = _parts(value)
            tensors = [t for part in parts for t in _within(part)]
            if len(tensors) > 1:
                yield Held(name, tensors, True)
            if depth < 2 and len(parts) <= 64:
                keys = list(dict.keys(value)) if isinstance(value, dict) else range(len(parts))
                for key, part in zip(keys, parts, strict=False):
                    # Of many tensors that lie in a list each is as old as it is; in a few places
                    # there may be running totals.
                    if len(parts) <= PLACES or not isinstance(part, torch.Tensor) or part.is_leaf:
                        waiting.append((f"{name}[{key!r}]".replace("'", '"'), part, depth + 1))
        elif depth < 3:
            attributes = plain_dict(value)
            for store in ("_parameters", "_modules", "_buffers"):
                inner = attributes.get(store)
                if type(inner) is dict:
                    waiting.extend((f"{name}.{k}", v, depth + 1) for k, v in list(inner.items()))
            for key, part in list(attributes.items())[:64]:
                if isinstance(key, str) and key not in _OF_MODULES:
                    waiting.append((f"{name}.{key}", part, depth + 1))


def _parts(value: Any) -> list[Any]:
    """A container's first elements, without running what a subclass may do when asked for them."""
    if isinstance(value, dict):
        return list(dict.values(value))[:ITEMS]
    kinds: tuple[Any, ...] = (list, tuple, deque)
    for kind in kinds:
        if isinstance(value, kind):
            return list(kind.__iter__(value))[:ITEMS]
    return []


# What every module of torch has for itself.
_OF_MODULES = frozenset(vars(torch.nn.Module()))

_known_modules: tuple[int, list[dict[Any, Any]]] = (0, [])


def _user_modules(users: UserFiles) -> list[dict[Any, Any]]:
    """The namespaces of the program's own modules."""
    global _known_modules
    if _known_modules[0] != len(sys.modules):
        scopes = []
        for module in list(sys.modules.values()):
            scope = plain_dict(module)
            file = scope.get("__file__")
            if module is sys.modules.get("__main__") or (isinstance(file, str) and users[file]):
                scopes.append(scope)
        _known_modules = len(sys.modules), scopes
    return _known_modules[1]


def _within(part: Any) -> Iterator[torch.Tensor]:
    """The tensors with history that an element is or holds."""
    if isinstance(part, torch.Tensor):
        if part.grad_fn is not None:
            yield part
    elif isinstance(part, (tuple, list, dict)) and len(part) <= 16:
        for tensor in _parts(part):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                yield tensor


def _below(tensor: torch.Tensor, recent: int) -> list[int]:
    """The sequence numbers that a short walk, towards the oldest first, reaches.

    It stops early where that leads to nothing from before ``recent``.
    """
    root: Any = tensor.grad_fn
    found: list[int] = []
    seen = {root}
    heap = [(node_number(root), 0, root)]
    while heap and len(seen) < NODES:
        number, _, node = heapq.heappop(heap)
        found.append(number)
        if len(found) == SHORT and min(found) >= recent:
            break
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                number = node_number(other)
                if number >= 0:
                    heapq.heappush(heap, (number, len(seen), other))
    return found


def _apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have graphs of their own: none leads to the one before it."""
    for before, after in pairwise(tensors[:7]):
        seen: set[Any] = {after.grad_fn}
        stack: list[Any] = [after.grad_fn]
        while stack and len(seen) < 500:
            for other, _ in stack.pop().next_functions:
                if other is before.grad_fn:
                    return False
                if other is not None and other not in seen:
                    seen.add(other)
                    stack.append(other)
        if after.grad_fn is before.grad_fn:
            return False
    return True


def size(tensors: Sequence[torch.Tensor], limit: int = 200_000) -> tuple[int, int]:
    """(nodes, bytes of saved tensors) below some tensors. Wraps nodes: for a forked child only."""
    from onegraph.recorder.walk import StateReader

    seen: set[Any] = set()
    stack: list[Any] = [t.grad_fn for t in tensors]
    storages: dict[int, int] = {}
    readers: dict[type, StateReader] = {}
    while stack and len(seen) < limit:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack.extend(other for other, _ in node.next_functions)
        reader = readers.setdefault(type(node), StateReader(node))
        for raw_name, name in reader.names:
            try:
                raw = getattr(node, raw_name)
                if isinstance(raw, (list, tuple)) or raw.unpack_hook is not None:
                    continue
                value = getattr(node, name)
            except Exception:
                continue
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
    return sum(1 for node in seen if not hasattr(node, "variable")), sum(storages.values())
