"""One reading of a graph and of what the live frames hold; runs in a child, see `autopsy`."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from onegraph._version import __version__
from onegraph.recorder import torchapi
from onegraph.recorder.cuts import Cut
from onegraph.recorder.names import Found, Names, parameter_names
from onegraph.recorder.session import (
    CHECKPOINT,
    CREATE,
    GRAD,
    LIBRARY,
    RETAIN,
    WEIGHTED,
    Recorder,
)
from onegraph.recorder.sources import Places
from onegraph.recorder.walk import Walk
from onegraph.recorder.writes import LEAF, storage_of
from onegraph.trace import (
    Binding,
    CutOff,
    EngineCall,
    Failure,
    Graph,
    Growing,
    Lost,
    Process,
    Retained,
    Stepped,
    Trace,
    Walked,
)
from onegraph.trace.messages import NO_GRAD, UNUSED, symptom_of

CALLS_KEPT = 80
BINDINGS_KEPT = 4_000
RUNS_KEPT = 16
STEPS_KEPT = 12
NAMES_KEPT = 4
# So many steps without a gradient are needed to call it lost, so many turns to call it unused.
LOST_AFTER = 3
RETAINED_AFTER = 3
# A child ends without taking apart what it made, which for a million nodes takes a second.
_KEPT: list[Examination] = []


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
        if limit is None:
            _KEPT.append(self)
        self.recorder = recorder
        self.ordinal = ordinal
        self.walk = Walk(roots, *([] if limit is None else [limit]))
        users = recorder.users
        self.names = names or Names([f for f in frames if users[f.f_code.co_filename]], users)
        self.parameters = {**recorder.training.names, **parameter_names(self.names)}
        self.storages = {
            storage_of(found.value): self.parameters[id(found.value)]
            for found in self.names.tensors
            if id(found.value) in self.parameters
        }
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
        self.graph: Graph = self.walk.graph(self._where, self._leaf_names(), last_freeing)

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
        result: dict[int, tuple[int, int, int, int]] = {}
        seen: dict[int, list[tuple[int, int, int, int]]] = {}
        tapes = self.recorder.all_tapes()
        alone = len(tapes) == 1 and not self.recorder.strangers
        for tape in tapes:
            for (_, key), (site, call, epoch) in zip(wanted, tape.locate(numbers), strict=True):
                if site < 0:
                    continue
                if alone:
                    result[key] = (tape.index, self.site(site), call, epoch)
                else:
                    seen.setdefault(key, []).append((tape.index, site, call, epoch))
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
                self._via[known] = library_name(self.recorder.sites.via[number])
        return known

    def _leaf_names(self) -> dict[int, str]:
        leads = {kind for kind in set(map(type, self.walk.nodes)) if hasattr(kind, "variable")}
        names = {}
        for position, node in enumerate(self.walk.nodes):
            if type(node) in leads and isinstance(node.variable, torch.Tensor):
                names[position] = self.parameters.get(id(node.variable), "")
        return names

    # -- parts of the trace ------------------------------------------------------------------------

    def trace(self, failure: Failure | None) -> Trace:
        """Everything read, as plain values."""
        bindings = self._bindings()
        calls = self._calls()
        runs = self._runs()
        # Only these are about history that is missing.
        wanted = failure is None or symptom_of(failure.message) in (NO_GRAD, UNUSED)
        cuts = self._cuts() if wanted else ()
        ended = failure is None
        lost = self._lost() if ended else ()
        zero = self._zero() if ended else ()
        growing = self._growing() if ended else ()
        retained = self._retained() if ended else ()
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
            cuts=cuts,
            lost=lost,
            moved=bool(self.recorder.training.stepped),
            zero=zero,
            growing=growing,
            retained=retained,
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

    def operation_failure(self, kind: str, message: str, chain: Any) -> Failure:
        """The failure of an operation at ``chain``."""
        self._chains.append(chain)
        return Failure(
            kind="operation",
            type=kind,
            message=message,
            step=None,
            site=len(self._chains) - 1,
            frames=(),
        )

    # -- tensors outside the graph ---------------------------------------------------------------

    def names_of(self, tensors: Iterable[Any]) -> tuple[str, ...]:
        """The live names of some tensors, the nearest first."""
        wanted = {id(tensor) for tensor in tensors}
        found = [f for f in self.names.tensors if id(f.value) in wanted]
        found.sort(key=lambda f: (".param_groups[" in f.name, f.steps, len(f.name)))
        own = [self.parameters[i] for i in wanted if i in self.parameters]
        return tuple(dict.fromkeys((*own, *(f.name for f in found))))[:NAMES_KEPT]

    def reaches(self, tensor: Any) -> bool:
        """Whether the graph holds the tensor's node."""
        if isinstance(tensor, GradientEdge):
            return tensor.node in self.walk.index
        if tensor.grad_fn is not None:
            return tensor.grad_fn in self.walk.index
        return any(getattr(node, "variable", None) is tensor for node in self.walk.nodes)

    def made_by(self, number: int) -> int:
        """The site of this thread's node of a number, -1 where it is unknown."""
        return self._locate([(number, 0)], lambda _: "")[0][1]

    def cut(self, found: Cut | None) -> int | None:
        """Index of a cut among the trace's."""
        return None if found is None else self._cuts_kept.index(found)

    @property
    def _cuts_kept(self) -> list[Cut]:
        return list(self.recorder.cuts.known.values())

    def _cuts(self) -> tuple[CutOff, ...]:
        result = []
        for cut in self._cuts_kept:
            site, off = self.site(cut.site), self.site(cut.off) if cut.off else -1
            names = {self.parameters[i] for i in cut.leaves if i in self.parameters}
            result.append(
                CutOff(
                    site=site if site >= 0 else None,
                    cause=cut.cause,
                    func=cut.func,
                    off=off if off >= 0 else None,
                    names=tuple(sorted(names)),
                    runs=cut.runs,
                    epoch=cut.epoch,
                    joined=cut.joined,
                )
            )
        return tuple(result)

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
        return tuple(
            (position, output)
            for position, mark in self._marked(by_mark)
            for output in by_mark[mark]
        )

    def _marked(self, marks: Collection[int]) -> Iterator[tuple[int, int]]:
        """(node, mark) of the nodes that carry one of the marks, ascending."""
        numbers = {mark >> 16 for mark in marks}
        for position, number in enumerate(self.walk.number):
            if number in numbers:
                mark = self.recorder.mark(number, self.graph.name(position))
                if mark in marks:
                    yield position, mark

    def _reached(self, wanted: set[int]) -> dict[int, tuple[tuple[int, int], ...]]:
        """Which nodes of this graph earlier calls walked, where it is known, as index ranges."""
        log = self.recorder.engine
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
                result[ordinal] = _ranges([position for position, _ in self._marked(seen)])
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
        groups: dict[tuple[int, int], set[str]] = {}
        names = self.storages
        for write in self.recorder.writes.since(max(0, self.ordinal - STEPS_KEPT)):
            if write.flags & LEAF:
                name = names.get(write.storage, "")
                groups.setdefault((write.epoch, write.site), set()).update([name] if name else [])
        result = []
        for (epoch, site), written in sorted(groups.items()):
            index = self.site(site)
            result.append(Stepped(index if index >= 0 else None, epoch, tuple(sorted(written))))
        return tuple(result)

    # -- what shows only when a program ends -----------------------------------------------------

    def _lost(self) -> tuple[Lost, ...]:
        """The parameters that optimizers stepped over, with the cuts that they lie behind."""
        result = []
        for key, (kind, steps) in self.recorder.training.lost(LOST_AFTER).items():
            cuts = tuple(k for k, cut in enumerate(self._cuts_kept) if key in cut.leaves)
            name = self.parameters.get(key, "")
            result.append(Lost(name, "zero" if kind == "zero" else "none", steps, cuts))
        return tuple(sorted(result, key=lambda lost: lost.name))

    def _zero(self) -> tuple[tuple[int, str], ...]:
        places = []
        for number, kind in self.recorder.training.zero_nodes.items():
            site = self.made_by(number)
            if site >= 0:
                places.append((site, kind.partition("Backward")[0].lower()))
        return tuple(dict.fromkeys(places))

    def _growing(self) -> tuple[Growing, ...]:
        result = []
        for found in self.recorder.growth.found.values():
            made = self.made_by(found.number)
            result.append(
                Growing(
                    name=found.name,
                    made=made if made >= 0 else None,
                    container=found.container,
                    tensors=found.tensors,
                    steps=found.until - found.since,
                    nodes=found.nodes,
                    bytes=found.bytes,
                    per=found.per,
                )
            )
        return tuple(result)

    def _retained(self) -> tuple[Retained, ...]:
        """Lines that kept a graph in each of their first turns, with no use of it in any."""
        log = self.recorder.engine
        turns: dict[int, list[int]] = {}
        for k in range(len(log)):
            if not log.parent[k]:
                turns.setdefault(log.site[k], []).append(k + 1)
        result = []
        for number, calls in turns.items():
            flags = log.flags[calls[0] - 1]
            if len(calls) < RETAINED_AFTER or not flags & RETAIN or flags & LIBRARY:
                continue
            apart = set(turns) - {log.site[k - 1] for k in range(calls[0], calls[1] + 1)}
            if any(turns[other][-1] > calls[0] for other in apart):
                continue  # another line's call comes less often, and may use what many turns made
            pairs = [pair for pair in pairwise(calls) if pair[0] in log.reached][:2]
            watched = [self._unused(*pair) for pair in pairs]
            if len(watched) == 2 and all(watched):
                site = self.site(number)
                nodes = len(log.reached[calls[0]])
                result.append(
                    Retained(
                        site if site >= 0 else None, bool(flags & CREATE), 2, len(calls), nodes
                    )
                )
        return tuple(result)

    def _unused(self, kept: int, following: int) -> bool:
        """Whether nothing up to the line's next turn used the graph that a call kept or made."""
        log = self.recorder.engine
        mine = set(log.reached[kept])
        made = range(log.number[kept - 1], log.after[kept - 1])
        for ordinal in range(kept + 1, following + 1):
            if log.parent[ordinal - 1] == kept:
                continue
            marks = log.reached.get(ordinal)
            if marks is None or not mine.isdisjoint(marks):
                return False
            if len(made) and any(mark >> 16 in made for mark in marks):
                return False
        return True

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


def library_name(filename: str) -> str:
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
