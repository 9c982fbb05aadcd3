"""One reading of a graph and of what the live frames hold; runs in a child, see `autopsy`."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch

from onegraph._version import __version__
from onegraph.recorder import torchapi
from onegraph.recorder.names import Found, Names, parameter_names
from onegraph.recorder.session import CHECKPOINT, CREATE, GRAD, RETAIN, WEIGHTED, Recorder
from onegraph.recorder.sources import Places
from onegraph.recorder.walk import Walk
from onegraph.trace import (
    Binding,
    EngineCall,
    Failure,
    Graph,
    Process,
    Stepped,
    Trace,
    Walked,
)

CALLS_KEPT = 80
BINDINGS_KEPT = 4_000
RUNS_KEPT = 16
STEPS_KEPT = 12


class Examination:
    """One reading of the graph below ``roots`` and of what the frames hold."""

    def __init__(
        self,
        recorder: Recorder,
        roots: Iterable[Any],
        frames: list[FrameType],
        ordinal: int,
        limit: int | None,
        names: Names | None = None,
    ) -> None:
        self.recorder = recorder
        self.ordinal = ordinal
        self.walk = Walk(roots, *([] if limit is None else [limit]))
        users = recorder.users
        self.names = names or Names([f for f in frames if users[f.f_code.co_filename]], users)
        self.parameters = parameter_names(self.names)
        self.places = Places(recorder.sites, recorder.folder, recorder.texts)
        self._sites: dict[int, int] = {}
        self._chains: list[Any] = []
        self._via: dict[int, str] = {}
        log = recorder.engine
        self._thread = log.thread[ordinal - 1] if ordinal <= len(log) else self._own_thread()
        self._starts = [
            (log.number[k], k + 1) for k in range(len(log)) if log.thread[k] == self._thread
        ]
        self._start_numbers = [number for number, _ in self._starts]
        nodes = self.walk.nodes
        self._where = self._locate(
            [(n, p) for p, n in enumerate(self.walk.number) if n >= 0], lambda p: nodes[p].name()
        )
        last_freeing = max(
            (k + 1 for k in range(min(ordinal - 1, len(log))) if not log.flags[k] & RETAIN),
            default=0,
        )
        where = self._where

        def needs_state(position: int) -> bool:
            place = where.get(position)
            return place is None or place[3] < last_freeing

        self.graph: Graph = self.walk.graph(where, self._leaf_names(), needs_state)

    def _own_thread(self) -> int:
        tape = self.recorder.tape()
        return -1 if tape is None else tape.index

    # -- where nodes were made -------------------------------------------------------------------

    def _locate(
        self, wanted: list[tuple[int, int]], kind_of: Callable[[int], str]
    ) -> dict[int, tuple[int, int, int, int]]:
        """key -> (thread, site, call, epoch) for (number, key) pairs."""
        wanted.sort()
        numbers = [number for number, _ in wanted]
        seen: dict[int, list[tuple[int, int, int, int]]] = {}
        for tape in self.recorder.all_tapes():
            for (_, key), (site, call, epoch) in zip(wanted, tape.locate(numbers), strict=True):
                if site >= 0:
                    seen.setdefault(key, []).append((tape.index, site, call, epoch))
        result: dict[int, tuple[int, int, int, int]] = {}
        for key, places in seen.items():
            thread, site, call, epoch = self._settle(places, kind_of(key))
            result[key] = (thread, self.site(site), call, epoch)
        for number, key in wanted:
            if key not in result:
                result[key] = (self._thread, -1, -1, self._epoch(number))
        return result

    def _settle(
        self, places: list[tuple[int, int, int, int]], kind: str
    ) -> tuple[int, int, int, int]:
        """The place among those of several threads that gave out the same number.

        An expression of the user's own that made other nodes when it first ran is out. When
        several remain that name different lines, the line is unknown and the time is this
        thread's.
        """
        table = self.recorder.sites
        thread, site, call, epoch = places[0]
        stranger = site not in table.via and kind not in table.kinds.get(site, frozenset((kind,)))
        if len(places) == 1 and self.recorder.strangers and stranger:
            return thread, 0, call, epoch
        own = [p for p in places if p[0] == self._thread] or places
        thread, site, call, epoch = own[0]
        if len({p[1] for p in places}) > 1:
            return thread, 0, call, epoch
        return thread, site, call, epoch

    def _epoch(self, number: int) -> int:
        """How many engine calls of this thread had begun when the number was given out."""
        at = bisect_right(self._start_numbers, number)
        return self._starts[at - 1][1] if at else 0

    def site(self, number: int) -> int:
        """Index of a recorded site in the trace's own table, -1 for no user line."""
        if number <= 0:
            return -1
        known = self._sites.get(number)
        if known is None:
            known = self._sites[number] = len(self._chains)
            self._chains.append(self.recorder.sites.chains[number])
            if number in self.recorder.sites.via:
                self._via[known] = _library(self.recorder.sites.via[number])
        return known

    def _leaf_names(self) -> dict[int, str]:
        names = {}
        for position, node in enumerate(self.walk.nodes):
            variable = getattr(node, "variable", None)
            if isinstance(variable, torch.Tensor):
                names[position] = self.parameters.get(id(variable), "")
        return names

    # -- parts of the trace ------------------------------------------------------------------------

    def trace(self, failure: Failure | None) -> Trace:
        """Everything read, as plain values."""
        bindings = self._bindings()
        calls = self._calls()
        runs = self._runs()
        walked = self._walked() if self.recorder.notes and failure is None else ()
        return Trace(
            versions=versions(),
            command=(),
            process=Process(os.getpid(), torchapi.rank()),
            sites=tuple(
                self.places.site(chain, self._via.get(k)) for k, chain in enumerate(self._chains)
            ),
            calls=calls,
            graph=self.graph,
            bindings=bindings,
            failure=failure,
            walked=walked,
            stepped=self._stepped(),
            sources=self.places.sources,
            blind=tuple(self.recorder.blind),
            lines_recorded=self.recorder.lines,
            reruns=runs,
        )

    def engine_failure(self, kind: str, message: str) -> Failure:
        """The failure of the engine call under examination."""
        site = self.site(self.recorder.engine.site[self.ordinal - 1])
        return Failure(
            kind="engine",
            type=kind,
            message=message,
            step=self.ordinal,
            site=site if site >= 0 else None,
            frames=(),
        )

    def access_failure(self, kind: str, message: str, chain: Any, owner: str) -> Failure:
        """The failure of a read of a saved tensor at ``chain``."""
        self._chains.append(chain)
        return Failure(
            kind="saved-access",
            type=kind,
            message=message,
            step=None,
            site=len(self._chains) - 1,
            frames=(),
            raising=0,
            owner=owner,
        )

    def _bindings(self) -> tuple[Binding, ...]:
        held: list[tuple[Found, Any, int]] = []
        for found in self.names.tensors:
            node = found.value.grad_fn
            if node is not None:
                held.append((found, node, int(found.value.output_nr)))
        for found in self.names.nodes:
            held.append((found, found.value, 0))
        index = self.walk.index
        held.sort(key=lambda h: (h[1] not in index, h[0].steps))
        held = held[:BINDINGS_KEPT]
        numbers = [(torchapi.node_number(node), key) for key, (_, node, _) in enumerate(held)]
        where = self._locate(
            [pair for pair in numbers if pair[0] >= 0], lambda key: held[key][1].name()
        )
        result = []
        for key, (found, node, output) in enumerate(held):
            thread, site, _, epoch = where.get(key, (-1, -1, -1, -1))
            result.append(
                Binding(
                    name=found.name,
                    number=numbers[key][0],
                    thread=thread,
                    site=site if site >= 0 else None,
                    epoch=epoch,
                    kind=node.name(),
                    output=output,
                    node=index.get(node),
                    depth=found.depth,
                    steps=found.steps,
                    holder=found.holder,
                    scalar=isinstance(found.value, torch.Tensor) and found.value.numel() == 1,
                )
            )
        return tuple(result)

    def _calls(self) -> tuple[EngineCall, ...]:
        log = self.recorder.engine
        upto = min(self.ordinal, len(log))
        wanted = set(range(max(1, upto - CALLS_KEPT + 1), upto + 1)) | set(
            range(1, min(9, upto + 1))
        )
        if self.graph.epoch:
            # The first calls after each old node's birth are the ones that may have freed it.
            for epoch in {e for e in self.graph.epoch if e >= 0}:
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
            index = self.site(site)
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
        pairs = self.recorder.engine.used.get(ordinal)
        if pairs is None:
            return None
        by_mark: dict[int, list[int]] = {}
        for mark, output in pairs:
            by_mark.setdefault(mark, []).append(output)
        graph = self.graph
        return tuple(
            (position, output)
            for position, number in enumerate(self.walk.number)
            if number >= 0
            for output in by_mark.get(self.recorder.mark(number, graph.name(position)), ())
        )

    def _reached(self, wanted: set[int]) -> dict[int, tuple[tuple[int, int], ...]]:
        """Which nodes of this graph earlier calls walked, where it is known, as index ranges."""
        log, graph = self.recorder.engine, self.graph
        result = {}
        alive: dict[tuple[int, int], Any] = {}
        for found in self.names.tensors:
            node = found.value.grad_fn
            if node is not None:
                alive[torchapi.node_number(node), int(found.value.output_nr)] = node
        searched = 0
        for ordinal in sorted(wanted):
            if ordinal >= self.ordinal:
                continue
            if ordinal in log.reached:
                seen = set(log.reached[ordinal])
                members = [
                    position
                    for position, number in enumerate(self.walk.number)
                    if number >= 0 and self.recorder.mark(number, graph.name(position)) in seen
                ]
                result[ordinal] = _ranges(members)
                continue
            if log.thread[ordinal - 1] != self._thread or searched >= 24:
                continue
            pairs = log.roots.get(ordinal) or [(log.root[ordinal - 1], log.output[ordinal - 1])]
            roots = [alive.get(pair) for pair in pairs]
            if all(root is not None for root in roots) and roots:
                searched += 1
                result[ordinal] = _ranges(sorted(self._below(roots)))
        return result

    def _below(self, roots: Iterable[Any]) -> set[int]:
        index = self.walk.index
        seen: set[Any] = set(roots)
        stack = list(seen)
        while stack and len(seen) < 500_000:
            for other, _ in stack.pop().next_functions:
                if other is not None and other not in seen:
                    seen.add(other)
                    stack.append(other)
        return {index[node] for node in seen if node in index}

    def _runs(self) -> dict[int, tuple[int, ...]]:
        """site -> the latest epochs in which it made nodes, for the sites of this graph."""
        recent: dict[int, list[int]] = {}
        # Only the last stretches matter: has the line run again since the call that freed it?
        first = max(0, self.ordinal - CALLS_KEPT)
        for tape in self.recorder.all_tapes():
            for site, epoch in tape.runs(first):
                known = self._sites.get(site)
                if known is None:
                    continue
                epochs = recent.setdefault(known, [])
                if not epochs or epochs[-1] != epoch:
                    epochs.append(epoch)
        return {site: tuple(sorted(set(epochs))[-RUNS_KEPT:]) for site, epochs in recent.items()}

    def _stepped(self) -> tuple[Stepped, ...]:
        """The latest in-place writes to trained leaves, gathered by line and time."""
        owners: dict[int, tuple[int, ...]] = {
            number: key if isinstance(key, tuple) else (key,)
            for key, number in self.recorder.targets.items()
        }
        groups: dict[tuple[int, int], set[int]] = {}
        for tape in self.recorder.all_tapes():
            for target, site, epoch, _ in tape.writes(max(0, self.ordinal - STEPS_KEPT)):
                groups.setdefault((epoch, site), set()).update(owners.get(target, ()))
        result = []
        for (epoch, site), written in sorted(groups.items()):
            index = self.site(site)
            names = {self.parameters[i] for i in written if i in self.parameters}
            result.append(Stepped(index if index >= 0 else None, epoch, tuple(sorted(names))))
        return tuple(result)

    def _walked(self) -> tuple[Walked, ...]:
        """Groups of engine calls that walked the same nodes with no harm done."""
        log = self.recorder.engine
        calls = sorted(
            k for k in log.reached if not log.parent[k - 1] and not log.flags[k - 1] & RETAIN
        )
        groups: list[tuple[list[int], set[int]]] = []
        for k in calls:
            mine = set(log.reached[k])
            for steps, shared in groups:
                if common := shared & mine:
                    steps.append(k)
                    shared.intersection_update(common)
                    break
            else:
                groups.append(([k], mine))
        names = {number: kind for kind, number in self.recorder.kinds.items()}
        result = []
        for steps, shared in groups:
            if len(steps) > 1:
                top = max(shared)
                site = self._locate([(top >> 16, top & 0xFFFF)], names.__getitem__)[top & 0xFFFF][1]
                kinds = tuple(sorted({names[mark & 0xFFFF] for mark in shared}))
                result.append(Walked(tuple(steps), len(shared), kinds, site if site >= 0 else None))
        return tuple(result)


def versions() -> dict[str, str]:
    """The versions a report states."""
    return {
        "onegraph": __version__,
        "torch": str(torch.__version__),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _library(filename: str) -> str:
    """``torch/utils/data/dataset.py`` for a file of an installed package."""
    parts = filename.replace(os.sep, "/").split("/site-packages/")
    return parts[-1]


def _ranges(members: list[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for member in members:
        if ranges and ranges[-1][1] == member:
            ranges[-1] = (ranges[-1][0], member + 1)
        else:
            ranges.append((member, member + 1))
    return tuple(ranges)
