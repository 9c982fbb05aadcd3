"""What shows only when a program ends: gradients that never came, graphs kept for nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from onegraph.recorder.session import CREATE, LIBRARY, RETAIN
from onegraph.trace import Growing, Lost, Retained, Walked

if TYPE_CHECKING:
    from onegraph.recorder.examination import Examination

# So many steps without a gradient are needed to call it lost, so many turns to call it unused.
LOST_AFTER = 3
RETAINED_AFTER = 3


class Ending:
    """Reads a recording that is over."""

    def __init__(self, examination: Examination) -> None:
        self._of = examination

    def lost(self) -> tuple[Lost, ...]:
        """The parameters that optimizers stepped over, with the cuts that they lie behind."""
        result = []
        for key, (kind, steps) in self._of.recorder.training.lost(LOST_AFTER).items():
            cuts = tuple(k for k, cut in enumerate(self._of.cuts_kept) if key in cut.leaves)
            name = self._of.parameters.get(key, "")
            result.append(Lost(name, "zero" if kind == "zero" else "none", steps, cuts))
        return tuple(sorted(result, key=lambda lost: lost.name))

    def zero(self) -> tuple[tuple[int, str], ...]:
        places = []
        for number, kind in self._of.recorder.training.zero_nodes.items():
            site = self._of.made_by(number)
            if site >= 0:
                places.append((site, kind.partition("Backward")[0].lower()))
        return tuple(dict.fromkeys(places))

    def growing(self) -> tuple[Growing, ...]:
        result = []
        for found in self._of.recorder.growth.found.values():
            made = self._of.made_by(found.number)
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

    def retained(self) -> tuple[Retained, ...]:
        """Lines that kept a graph in each of their first turns, with no use of it in any."""
        log = self._of.recorder.engine
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
                site = self._of.site(number)
                nodes = len(log.reached[calls[0]])
                result.append(
                    Retained(
                        site if site >= 0 else None, bool(flags & CREATE), 2, len(calls), nodes
                    )
                )
        return tuple(result)

    def _unused(self, kept: int, following: int) -> bool:
        """Whether nothing up to the line's next turn used the graph that a call kept or made."""
        log = self._of.recorder.engine
        mine = set(log.reached[kept])
        first = log.number[kept - 1]
        made = range(first, first + log.made[kept - 1])
        for ordinal in range(kept + 1, following + 1):
            if log.parent[ordinal - 1] == kept:
                continue
            marks = log.reached.get(ordinal)
            if marks is None or not mine.isdisjoint(marks):
                return False
            if len(made) and any(mark >> 16 in made for mark in marks):
                return False
        return True

    def walked(self) -> tuple[Walked, ...]:
        """Groups of engine calls that walked the same nodes with no harm done."""
        log = self._of.recorder.engine
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
        names = {number: kind for kind, number in self._of.recorder.kinds.items()}
        result = []
        for steps, shared in groups:
            if len(steps) > 1:
                top = max(shared)
                site = self._of.locate([(top >> 16, top & 0xFFFF)], names.__getitem__)[
                    top & 0xFFFF
                ][1]
                kinds = tuple(sorted({names[mark & 0xFFFF] for mark in shared}))
                result.append(Walked(tuple(steps), len(shared), kinds, site if site >= 0 else None))
        return tuple(result)
