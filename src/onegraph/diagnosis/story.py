"""Reads a failed backward off a trace: which node raised, what freed it, where old meets new."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import NamedTuple

from onegraph.trace import EngineCall, Graph, State, Trace


class Bridge(NamedTuple):
    """An edge over which the failing graph enters an older part.

    Args:
        new, old: the nodes at its ends.
        output: which output of ``old`` is used: together they are one tensor.
        slot: which input of ``new`` it is.
    """

    new: int
    old: int
    output: int
    slot: int


@dataclass(frozen=True, slots=True)
class Story:
    """The facts of one second backward.

    Args:
        failed: the engine call that raised.
        raising: the node whose saved tensors were gone.
        freed: the earlier call that freed them, None when it cannot be told.
        proved: whether ``freed`` is the only call that can have done it.
        in_time: bridges from nodes made after ``freed`` began to nodes made before.
        crossing: as ``in_time``, but into any part that holds freed nodes.
        in_share: bridges from nodes that only the failing call reaches to what both reach.
        shared: one byte a node, 1 for what both calls reach.
        again: earlier calls from the very same place, newest last.
    """

    trace: Trace
    failed: EngineCall | None
    raising: int
    freed: EngineCall | None
    proved: bool
    in_time: tuple[Bridge, ...]
    crossing: tuple[Bridge, ...]
    in_share: tuple[Bridge, ...]
    shared: bytearray
    leads: bytearray
    again: tuple[EngineCall, ...] = ()
    rivals: tuple[EngineCall, ...] = field(default=())

    @property
    def graph(self) -> Graph:
        """The failing graph."""
        return self.trace.graph

    @property
    def same_root(self) -> bool:
        """Whether both calls started from the very same tensor."""
        failed, freed = self.failed, self.freed
        if failed is None or freed is None:
            return False
        pair = set(zip(failed.roots, failed.outputs, strict=False))
        return (
            failed.thread == freed.thread
            and bool(pair)
            and pair == set(zip(freed.roots, freed.outputs, strict=False))
            and -1 not in failed.roots
        )

    @property
    def rows(self) -> bool:
        """Whether both calls weighted one tensor's elements: rows of its Jacobian."""
        failed, freed = self.failed, self.freed
        weighted = failed is not None and freed is not None and failed.weighted and freed.weighted
        return weighted and self.same_root

    def born_after(self, node: int, call: EngineCall) -> bool:
        """Whether the node was made after the call began."""
        return self.graph.epoch[node] >= call.ordinal

    def crossed(self, node: int) -> EngineCall | None:
        """The last earlier run of the failing line since ``node`` was made, if any."""
        epoch = self.graph.epoch[node]
        later = [call for call in self.again if call.ordinal > epoch]
        return later[-1] if later else None

    def rebuilt(self, node: int) -> bool:
        """Whether the line that made ``node`` ran again after the failing line had run."""
        site = self.graph.site[node]
        call = self.crossed(node)
        if site < 0 or call is None:
            return False
        return any(epoch >= call.ordinal for epoch in self.trace.reruns.get(site, ()))


def read(trace: Trace) -> Story | None:
    """The story of a failed second backward, None when the graph does not tell one."""
    failure = trace.failure
    if failure is None or not len(trace.graph):
        return None
    graph = trace.graph
    failed = next((c for c in trace.calls if c.ordinal == failure.step), None)
    before = failure.step if failure.step is not None else 1 << 60
    earlier = [
        call
        for call in trace.calls
        if call.ordinal < before and (failed is None or call.ordinal != failed.parent)
    ]
    raising = failure.raising
    if raising is None:
        raising = _raising(graph, failed, earlier)
    if raising is None:
        return None
    freed, proved, rivals = _freed(graph, raising, failed, earlier)
    leads = graph.leads_to([raising])
    again = tuple(
        call
        for call in earlier
        if failed is not None and call.site == failed.site and call.site is not None
    )
    in_time: tuple[Bridge, ...] = ()
    crossing: tuple[Bridge, ...] = ()
    in_share: tuple[Bridge, ...] = ()
    shared = bytearray(len(graph))
    if freed is not None:
        old = _made_before(graph, freed)
        crossing = in_time = _bridges(graph, leads, old)
        gone = {n for n, state in enumerate(graph.state) if state == State.FREED and old[n]}
        if gone - {raising}:
            crossing = _bridges(graph, graph.leads_to(gone | {raising}), old)
        shared = _shared(graph, raising, freed)
        in_share = _bridges(graph, leads, shared)
    return Story(
        trace=trace,
        failed=failed,
        raising=raising,
        freed=freed,
        proved=proved,
        in_time=in_time,
        crossing=crossing,
        in_share=in_share,
        shared=shared,
        leads=leads,
        again=again,
        rivals=rivals,
    )


def between(trace: Trace, node: int, failed: EngineCall, kept: EngineCall) -> Story | None:
    """The story of a graph that an earlier call walked and kept, and that leads to ``node``.

    None when nothing in the failing graph is newer than that call.
    """
    graph = trace.graph
    leads = graph.leads_to([node])
    crossing = _bridges(graph, leads, _made_before(graph, kept))
    if not crossing or graph.epoch[node] >= kept.ordinal:
        return None
    again = tuple(
        c
        for c in trace.calls
        if c.ordinal < failed.ordinal and c.site == failed.site and c.site is not None
    )
    return Story(
        trace=trace,
        failed=failed,
        raising=node,
        freed=kept,
        proved=True,
        in_time=crossing,
        crossing=crossing,
        in_share=(),
        shared=bytearray(len(graph)),
        leads=leads,
        again=again,
    )


def _may_have_freed(graph: Graph, node: int, call: EngineCall) -> bool | None:
    """Whether a call can have freed a node: True or False where known, None where possible."""
    if call.retain or call.ordinal <= graph.epoch[node]:
        return False
    if call.reached is not None:
        return any(first <= node < last for first, last in call.reached)
    if graph.thread[node] == call.thread and call.roots and max(call.roots) < graph.number[node]:
        return False
    return None


class _Suspects:
    """For each node what `_may_have_freed` says of many calls, without asking each of them."""

    def __init__(self, graph: Graph, calls: list[EngineCall]) -> None:
        self._graph = graph
        self.walked = bytearray(len(graph))
        freeing = [call for call in calls if not call.retain]
        for call in freeing:
            for first, last in call.reached or ():
                for node in range(first, last):
                    if graph.epoch[node] < call.ordinal:
                        self.walked[node] = 1
        self._open = [call for call in freeing if call.reached is None]
        self._ordinals = [call.ordinal for call in self._open]
        self._heights: dict[int, list[float]] = {}

    def maybe(self, node: int) -> bool:
        """Whether a call whose walk is not known can have freed the node."""
        thread = self._graph.thread[node]
        if thread not in self._heights:
            # The highest number that each call or a later one can have walked in this thread.
            tops: list[float] = [
                max(call.roots) if call.roots and call.thread == thread else inf
                for call in reversed(self._open)
            ]
            self._heights[thread] = list(accumulate(tops, max))[::-1]
        later = bisect_right(self._ordinals, self._graph.epoch[node])
        heights = self._heights[thread]
        return later < len(heights) and heights[later] >= self._graph.number[node]


def _raising(graph: Graph, failed: EngineCall | None, earlier: list[EngineCall]) -> int | None:
    """The node that raised: the engine takes ready nodes by descending sequence number.

    What the failing call had already run is freed as well. Such nodes lie above the one that
    raised, so the first freed node that an earlier call can have reached is the one.
    """
    candidates = [
        node
        for node in range(len(graph))
        if graph.state[node] == State.FREED or graph.name(node) == "CopySlices"
    ]
    candidates.sort(key=lambda node: -graph.number[node])
    suspects = _Suspects(graph, earlier)
    possible = None
    for node in candidates:
        if suspects.walked[node]:
            if possible is not None and failed is not None and not failed.retain:
                # A higher node may have been freed long ago too; a known walk weighs more.
                return node
            return node if possible is None else possible
        if possible is None and graph.state[node] == State.FREED and suspects.maybe(node):
            possible = node
    if possible is not None:
        return possible
    freed = [node for node in candidates if graph.state[node] == State.FREED]
    return freed[0] if freed else None


def _freed(
    graph: Graph, raising: int, failed: EngineCall | None, earlier: list[EngineCall]
) -> tuple[EngineCall | None, bool, tuple[EngineCall, ...]]:
    """(the call that freed a node, whether that is proved, all calls that can have)."""
    known = [call for call in earlier if _may_have_freed(graph, raising, call) is True]
    open_ = [call for call in earlier if _may_have_freed(graph, raising, call) is None]
    threads = {call.thread for call in (*known, *open_)}
    if failed is not None and len(threads) > 1:
        # Threads share sequence numbers, so a call of another thread is only a guess.
        own = [call for call in known if call.thread == failed.thread]
        other = [call for call in open_ if call.thread == failed.thread]
        if own or other:
            return (own or other)[0], False, (*known, *open_)
    if known:
        first = known[0]
        sooner = [call for call in open_ if call.ordinal < first.ordinal]
        return first, not sooner, (*sooner, *known)
    if len(open_) == 1:
        return open_[0], True, tuple(open_)
    if open_:
        same = [c for c in open_ if failed is not None and c.site == failed.site]
        return (same or open_)[0], False, tuple(open_)
    return None, False, ()


def _made_before(graph: Graph, call: EngineCall) -> bytearray:
    """One byte a node: 1 when it was made before the call began."""
    ordinal = call.ordinal
    return bytearray(epoch < ordinal for epoch in graph.epoch)


def _bridges(graph: Graph, leads: bytearray, old: bytearray) -> tuple[Bridge, ...]:
    """The edges from nodes outside ``old`` to nodes in it, among those that lead on."""
    found = []
    start, target, output = graph.start, graph.target, graph.output
    for new in range(len(graph)):
        if leads[new] and not old[new]:
            first = start[new]
            for position in range(first, start[new + 1]):
                child = target[position]
                if child >= 0 and old[child] and leads[child]:
                    found.append(Bridge(new, child, output[position], position - first))
    return tuple(found)


def _shared(graph: Graph, raising: int, freed: EngineCall) -> bytearray:
    """What both calls reach, whole runs of an expression at a time."""
    if freed.reached is not None:
        shared = bytearray(len(graph))
        for first, last in freed.reached:
            for node in range(first, last):
                if graph.epoch[node] < freed.ordinal:
                    shared[node] = 1
    else:
        shared = graph.reach([raising])
    shared[raising] = 1
    runs = {
        graph.call[node]
        for node in range(len(graph))
        if shared[node] and graph.call[node] >= 0 and graph.site[node] >= 0
    }
    for node in range(len(graph)):
        if graph.call[node] in runs and graph.epoch[node] < freed.ordinal:
            shared[node] = 1
    return shared
