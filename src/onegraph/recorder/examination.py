"""One reading of a graph and of what the live frames hold; runs in a child, see `autopsy`."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from onegraph._version import __version__
from onegraph.recorder import torchapi
from onegraph.recorder.calls import Calls
from onegraph.recorder.cuts import Cut
from onegraph.recorder.ending import Ending
from onegraph.recorder.names import Found, Names, parameter_names
from onegraph.recorder.session import (
    RETAIN,
    Recorder,
)
from onegraph.recorder.sources import Places
from onegraph.recorder.walk import Walk
from onegraph.recorder.writes import storage_of
from onegraph.trace import (
    Binding,
    CutOff,
    Failure,
    Graph,
    Process,
    Trace,
)
from onegraph.trace.messages import NO_GRAD, UNUSED, symptom_of

BINDINGS_KEPT = 4_000
NAMES_KEPT = 4
_kept: list[Examination] | None = None


def keep_all() -> None:
    """Take no examination of this process apart, which for a million nodes takes a second."""
    global _kept
    _kept = []


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
        if _kept is not None:
            _kept.append(self)
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
        self.sites: dict[int, int] = {}
        self._chains: list[Any] = []
        self._via: dict[int, str] = {}
        log = recorder.engine
        self.thread = log.thread[ordinal - 1] if ordinal <= len(log) else self._own_thread()
        self._starts = [
            (number, k + 1)
            for k, (number, thread) in enumerate(zip(log.number, log.thread, strict=True))
            if thread == self.thread
        ]
        self._start_numbers = [number for number, _ in self._starts]
        nodes = self.walk.nodes
        self._where = self.locate(
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

    def locate(
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
                result[key] = (self.thread, -1, -1, self._epoch(number))
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
        own = [p for p in places if p[0] == self.thread] or places
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
        known = self.sites.get(number)
        if known is None:
            known = self.sites[number] = len(self._chains)
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
        calls = Calls(self)
        engine = calls.calls()
        runs = calls.runs()
        # Only these are about history that is missing.
        wanted = failure is None or symptom_of(failure.message) in (NO_GRAD, UNUSED)
        cuts = self._cuts() if wanted else ()
        ended, ending = failure is None, Ending(self)
        lost = ending.lost() if ended else ()
        zero = ending.zero() if ended else ()
        growing = ending.growing() if ended else ()
        retained = ending.retained() if ended else ()
        walked = ending.walked() if self.recorder.notes and failure is None else ()
        return Trace(
            versions=versions(),
            command=(),
            process=Process(os.getpid(), torchapi.rank()),
            sites=tuple(
                self.places.site(chain, self._via.get(k)) for k, chain in enumerate(self._chains)
            ),
            calls=engine,
            graph=self.graph,
            bindings=bindings,
            failure=failure,
            walked=walked,
            stepped=calls.stepped(),
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
        return self.locate([(number, 0)], lambda _: "")[0][1]

    def cut(self, found: Cut | None) -> int | None:
        """Index of a cut among the trace's."""
        return None if found is None else self.cuts_kept.index(found)

    @property
    def cuts_kept(self) -> list[Cut]:
        return list(self.recorder.cuts.known.values())

    def _cuts(self) -> tuple[CutOff, ...]:
        result = []
        for cut in self.cuts_kept:
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
        where = self.locate(
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
