"""The engine calls before the one under examination, and what they walked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onegraph.recorder import torchapi
from onegraph.recorder.session import CHECKPOINT, CREATE, GRAD, RETAIN, WEIGHTED
from onegraph.recorder.writes import LEAF
from onegraph.trace import EngineCall, Stepped

if TYPE_CHECKING:
    from onegraph.recorder.examination import Examination

CALLS_KEPT = 80
RUNS_KEPT = 16
STEPS_KEPT = 12


class Calls:
    """Reads the log of engine calls beside the graph."""

    def __init__(self, examination: Examination) -> None:
        self._of = examination

    def calls(self) -> tuple[EngineCall, ...]:
        log = self._of.recorder.engine
        upto = min(self._of.ordinal, len(log))
        wanted = set(range(max(1, upto - CALLS_KEPT + 1), upto + 1)) | set(
            range(1, min(9, upto + 1))
        )
        if self._of.graph.epoch:
            # The first calls after each old node's birth are the ones that may have freed it.
            for epoch in {e for e in self._of.graph.epoch if e >= 0}:
                wanted.update(range(epoch + 1, min(epoch + 5, upto + 1)))
        turns: dict[int, int] = {}
        steps = 0
        result = []
        reached = self._reached(wanted)
        for k in range(upto):
            site = log.site[k]
            turns[site] = turns.get(site, 0) + 1
            parent = log.parent[k]
            if not parent:
                steps += 1
            ordinal = k + 1
            if ordinal not in wanted:
                continue
            flags = log.flags[k]
            pairs = log.roots.get(ordinal) or ([(log.root[k], log.output[k])])
            index = self._of.site(site)
            result.append(
                EngineCall(
                    ordinal=ordinal,
                    step=steps,
                    turn=turns[site],
                    kind="grad" if flags & GRAD else "backward",
                    site=index if index >= 0 else None,
                    retain=bool(flags & RETAIN),
                    create=bool(flags & CREATE),
                    thread=log.thread[k],
                    parent=parent or None,
                    roots=tuple(number for number, _ in pairs),
                    outputs=tuple(output for _, output in pairs),
                    reached=reached.get(ordinal),
                    used=self._used(ordinal),
                    weighted=bool(flags & WEIGHTED),
                    inside="checkpoint" if flags & CHECKPOINT else None,
                )
            )
        return tuple(result)

    def _used(self, ordinal: int) -> tuple[tuple[int, int], ...] | None:
        pairs = self._of.recorder.engine.used.get(ordinal)
        if pairs is None:
            return None
        by_mark: dict[int, list[int]] = {}
        for mark, output in pairs:
            by_mark.setdefault(mark, []).append(output)
        return tuple(
            (position, output)
            for position, mark in self._marked(by_mark)
            for output in by_mark[mark]
        )

    def _marked(self, marks: Collection[int]) -> Iterator[tuple[int, int]]:
        """(node, mark) of the nodes that carry one of the marks, ascending."""
        numbers = {mark >> 16 for mark in marks}
        for position, number in enumerate(self._of.walk.number):
            if number in numbers:
                mark = self._of.recorder.mark(number, self._of.graph.name(position))
                if mark in marks:
                    yield position, mark

    def _reached(self, wanted: set[int]) -> dict[int, tuple[tuple[int, int], ...]]:
        """Which nodes of this graph earlier calls walked, where it is known, as index ranges."""
        log = self._of.recorder.engine
        result = {}
        alive: dict[tuple[int, int], Any] = {}
        for found in self._of.names.tensors:
            node = found.value.grad_fn
            if node is not None:
                alive[torchapi.node_number(node), int(found.value.output_nr)] = node
        searched = 0
        for ordinal in sorted(wanted):
            if ordinal >= self._of.ordinal:
                continue
            if ordinal in log.reached:
                seen = set(log.reached[ordinal])
                result[ordinal] = _ranges([position for position, _ in self._marked(seen)])
                continue
            if log.thread[ordinal - 1] != self._of.thread or searched >= 24:
                continue
            pairs = log.roots.get(ordinal) or [(log.root[ordinal - 1], log.output[ordinal - 1])]
            roots = [alive.get(pair) for pair in pairs]
            if all(root is not None for root in roots) and roots:
                searched += 1
                result[ordinal] = _ranges(sorted(self._below(roots)))
        return result

    def _below(self, roots: Iterable[Any]) -> set[int]:
        index = self._of.walk.index
        seen: set[Any] = set(roots)
        stack = list(seen)
        while stack and len(seen) < 500_000:
            for other, _ in stack.pop().next_functions:
                if other is not None and other not in seen:
                    seen.add(other)
                    stack.append(other)
        return {index[node] for node in seen if node in index}

    def runs(self) -> dict[int, tuple[int, ...]]:
        """site -> the latest epochs in which it made nodes, for the sites of this graph."""
        recent: dict[int, list[int]] = {}
        # Only the last stretches matter: has the line run again since the call that freed it?
        first = max(0, self._of.ordinal - CALLS_KEPT)
        for tape in self._of.recorder.all_tapes():
            for site, epoch in tape.runs(first):
                known = self._of.sites.get(site)
                if known is None:
                    continue
                epochs = recent.setdefault(known, [])
                if not epochs or epochs[-1] != epoch:
                    epochs.append(epoch)
        return {site: tuple(sorted(set(epochs))[-RUNS_KEPT:]) for site, epochs in recent.items()}

    def stepped(self) -> tuple[Stepped, ...]:
        """The latest in-place writes to trained leaves, gathered by line and time."""
        groups: dict[tuple[int, int], set[str]] = {}
        names = self._of.storages
        for write in self._of.recorder.writes.since(max(0, self._of.ordinal - STEPS_KEPT)):
            if write.flags & LEAF:
                name = names.get(write.storage, "")
                groups.setdefault((write.epoch, write.site), set()).update([name] if name else [])
        result = []
        for (epoch, site), written in sorted(groups.items()):
            index = self._of.site(site)
            result.append(Stepped(index if index >= 0 else None, epoch, tuple(sorted(written))))
        return tuple(result)


def _ranges(members: list[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for member in members:
        if ranges and ranges[-1][1] == member:
            ranges[-1] = (ranges[-1][0], member + 1)
        else:
            ranges.append((member, member + 1))
    return tuple(ranges)
