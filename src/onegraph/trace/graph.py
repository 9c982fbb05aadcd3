"""An autograd graph as columns of numbers: a million nodes fit, and rules can walk it quickly."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Ints = array[int]
else:
    Ints = array  # 3.11 cannot subscript it when annotations are read at run time


class State(IntEnum):
    """What became of the tensors a node had saved for backward."""

    NOTHING = 0  # it saves no tensor, so it never raises
    ALIVE = 1
    FREED = 2
    OVERWRITTEN = 3
    UNKNOWN = 4


@dataclass(frozen=True)
class Graph:
    """Nodes 0..n-1 in the order they were found from the roots, one entry a column.

    Args:
        kinds: the distinct node type names.
        kind: index into `kinds`.
        number: autograd's sequence number within the thread that made the node, -1 if none.
        thread: index of that thread, -1 if unknown.
        site: index into `Trace.sites`, -1 if unknown.
        call: which recorded call made the node (equal numbers: the same run), -1 if unknown.
        epoch: how many engine calls had begun when the node was made, -1 if unknown.
        state: a `State`.
        start: ``target[start[i]:start[i + 1]]`` are the nodes that node i leads to (-1: none).
        target, output: the edge's end, and which output of that node it is.
        leaves: node -> name of the leaf tensor it accumulates into.
        scalar: 1 where the node's first output has one element, 0 elsewhere or unknown.
        roots: the nodes the walk started from.
        complete: False when the walk hit its limit.
    """

    kinds: tuple[str, ...]
    kind: Ints
    number: Ints
    thread: Ints
    site: Ints
    call: Ints
    epoch: Ints
    state: bytes
    start: Ints
    target: Ints
    output: Ints
    leaves: dict[int, str] = field(default_factory=dict)
    scalar: bytes = b""
    roots: tuple[int, ...] = ()
    complete: bool = True

    @classmethod
    def empty(cls) -> Graph:
        """A graph without nodes."""
        q, i = array("q"), array("i")
        return cls((), i, q, i, i, q, i, b"", array("q", [0]), i, i)

    def __len__(self) -> int:
        return len(self.kind)

    def name(self, node: int) -> str:
        """The node's type name, as torch prints it."""
        return self.kinds[self.kind[node]]

    def edges(self, node: int) -> Iterator[tuple[int, int, int]]:
        """(input index, node it leads to, output of that node), absent edges left out."""
        first = self.start[node]
        for position in range(first, self.start[node + 1]):
            if self.target[position] >= 0:
                yield position - first, self.target[position], self.output[position]

    def reach(self, roots: Iterable[int]) -> bytearray:
        """One byte a node: 1 when it can be reached from ``roots``, themselves included."""
        seen = bytearray(len(self))
        stack = []
        for root in roots:
            if not seen[root]:
                seen[root] = 1
                stack.append(root)
        start, target = self.start, self.target
        while stack:
            node = stack.pop()
            for other in target[start[node] : start[node + 1]]:
                if other >= 0 and not seen[other]:
                    seen[other] = 1
                    stack.append(other)
        return seen

    def leads_to(self, ends: Iterable[int]) -> bytearray:
        """One byte a node: 1 when it leads to one of ``ends``, themselves included."""
        seen = bytearray(len(self))
        stack = list(ends)
        for node in stack:
            seen[node] = 1
        first, parents, _ = self._upward
        while stack:
            node = stack.pop()
            for parent in parents[first[node] : first[node + 1]]:
                if not seen[parent]:
                    seen[parent] = 1
                    stack.append(parent)
        return seen

    def parents(self, node: int) -> Iterator[tuple[int, int]]:
        """(node, input index) of the edges that lead to a node."""
        first, parents, slots = self._upward
        here = slice(first[node], first[node + 1])
        return zip(parents[here], slots[here], strict=True)

    @cached_property
    def _upward(self) -> tuple[list[int], Ints, Ints]:
        """The edges by their ends: where each node's begin, their parents and input indices."""
        count = [0] * (len(self) + 1)
        for child in self.target:
            if child >= 0:
                count[child] += 1
        first = list(accumulate(count, initial=0))[: len(self) + 1]
        place = first.copy()
        parents, slots = array("i", bytes(4 * first[-1])), array("i", bytes(4 * first[-1]))
        for parent, (begin, end) in enumerate(pairwise(self.start)):
            for slot, child in enumerate(self.target[begin:end]):
                if child >= 0:
                    at = place[child]
                    place[child] = at + 1
                    parents[at] = parent
                    slots[at] = slot
        return first, parents, slots
