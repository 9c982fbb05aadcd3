"""Chooses the name the user gave a tensor, from live variables and from the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from posixpath import commonpath

from onegraph.diagnosis.statement import Statement
from onegraph.diagnosis.story import Bridge, Story
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import Binding, Frame

KEPT = 4


@dataclass(slots=True)
class Candidate:
    """A possible name and what speaks for it."""

    name: str
    score: float = 0.0
    exact: bool = False
    binding: Binding | None = None
    evidence: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Naming:
    """The names chosen, best first, and whether the best was read off a live variable.

    ``stored`` is where the tensor was stored when it was made; ``read`` what took it.
    """

    names: tuple[str, ...]
    exact: bool
    binding: Binding | None
    stored: tuple[str, ...]
    read: tuple[str, ...]

    @property
    def best(self) -> str | None:
        """The name to print."""
        return self.names[0] if self.names else None


def last_part(name: str) -> str:
    """The identifier a name ends in: `hidden` for `self.rnn.hidden[0]`."""
    bare = re.sub(r"\[[^\]]*\]", "", name)
    bare = re.sub(r"\(.*?\)", "", bare)
    return bare.rpartition(".")[2]


def owners(names: Iterable[str]) -> list[str]:
    """What several names belong to: the module of parameters, the list of elements."""
    listed = list(names)
    lists = {re.sub(r"\[[^\]]*\]$", "", name) for name in listed}
    if len(lists) == 1 and not lists & set(listed):
        return list(lists)
    paths = [name.replace(".", "/") for name in listed]
    common = commonpath(paths).replace("/", ".") if len(paths) > 1 else ""
    return [common] if common and common not in listed else []


def name_of(story: Story, syntax: Syntax, bridge: Bridge) -> Naming:
    """The name of the tensor that crosses a bridge."""
    graph = story.graph
    built = _chain(story, graph.site[bridge.old])
    joined = _chain(story, graph.site[bridge.new])
    overtaken: frozenset[str] = frozenset()
    if story.crossed(bridge.old) is not None:
        overtaken = _overtaken(story, syntax, built, joined)
    failing = _failing(story)
    alike = [
        b
        for b in _alike(story, bridge)
        if b.name not in overtaken or b.depth is None or not _at_home(failing, b.depth, joined)
    ]
    return choose(
        syntax,
        exact=_exact(story.trace.bindings, bridge),
        alike=alike,
        built=built,
        joined=joined,
        overtaken=overtaken,
    )


def choose(
    syntax: Syntax,
    *,
    exact: Iterable[Binding],
    alike: Iterable[Binding],
    built: tuple[Frame, ...],
    joined: tuple[Frame, ...],
    overtaken: Set[str] = frozenset(),
) -> Naming:
    """Weigh live variables against what the built and joined lines store and read."""
    made = [(frame, syntax.statement(frame)) for frame in built]
    taken = [(frame, syntax.statement(frame)) for frame in joined]
    # Below a line that calls backward stands what runs inside it; that line itself takes nothing.
    taken = [
        (frame, statement)
        for level, (frame, statement) in enumerate(taken)
        if not level or statement is None or ".backward(" not in statement.text
    ]
    stored = _unique(n for _, s in made if s for n in s.stores if n not in overtaken)
    read = _unique(n for _, s in taken if s for n in s.reads if n not in overtaken)
    candidates: dict[str, Candidate] = {}

    def note(name: str, points: float, why: str, binding: Binding | None = None) -> None:
        candidate = candidates.setdefault(name, Candidate(name))
        candidate.score = max(candidate.score, 0.0) + points
        candidate.evidence.append(why)
        if binding is not None and (candidate.binding is None or why == "exact"):
            candidate.binding = binding
            candidate.exact = candidate.exact or why == "exact"

    for why, points, bindings in (("exact", 100.0, exact), ("alike", 45.0, alike)):
        seen: set[str] = set()
        for binding in bindings:
            if binding.name not in seen:
                seen.add(binding.name)
                note(binding.name, points - 6 * binding.steps, why, binding)
                if binding.depth is None:
                    candidates[binding.name].score -= 2
                if binding.name.endswith(".grad"):
                    candidates[binding.name].score -= 30
    for name, points in _carried(made, taken):
        if name not in overtaken:
            note(name, points, "carried")
    live = [c for c in candidates.values() if c.binding is not None]
    for candidate in live:
        ending = last_part(candidate.name)
        if any(name == candidate.name for name in read) or any(
            last_part(name) == ending for name in read
        ):
            candidate.score += 25
        if any(last_part(name) == ending for name in stored):
            candidate.score += 20
    _spell_as_written(candidates, live, (*stored, *read))
    if not candidates:
        for name in stored[:1]:
            note(name, 10, "stored")
        for name in read[:1]:
            note(name, 4, "read")
    ranked = sorted(candidates.values(), key=lambda c: (-c.score, len(c.name)))
    names = _spellings(ranked)
    best = ranked[0] if ranked else None
    same = next(
        (c for c in ranked if c.binding and best and last_part(c.name) == last_part(best.name)),
        None,
    )
    return Naming(
        names=tuple(names[:KEPT]),
        exact=bool(same and same.exact),
        binding=same.binding if same else None,
        stored=stored,
        read=read,
    )


def _chain(story: Story, site: int) -> tuple[Frame, ...]:
    return story.trace.sites[site].frames if site >= 0 else ()


def _exact(bindings: tuple[Binding, ...], bridge: Bridge) -> list[Binding]:
    same = [b for b in bindings if b.node == bridge.old]
    return [b for b in same if b.output == bridge.output] or same


def _alike(story: Story, bridge: Bridge) -> list[Binding]:
    """Live tensors that the same expression made later: what the name holds by now."""
    graph = story.graph
    site = graph.site[bridge.old]
    kind = graph.name(bridge.old)
    if site < 0:
        # No line to compare: a tensor of this step, of the same kind, that leads to the old one.
        return [
            b
            for b in story.trace.bindings
            if b.node is not None
            and b.node not in graph.roots
            and (b.kind, b.output) == (kind, bridge.output)
            and story.leads[b.node]
            and story.freed is not None
            and story.born_after(b.node, story.freed)
        ]
    alike = [b for b in story.trace.bindings if b.site == site and b.node != bridge.old]
    close = [b for b in alike if b.kind == kind and b.output == bridge.output]
    return close or alike


def _failing(story: Story) -> tuple[Frame, ...]:
    failure = story.trace.failure
    if failure is None or failure.site is None:
        return ()
    return story.trace.sites[failure.site].frames


def _at_home(failing: tuple[Frame, ...], depth: int, joined: tuple[Frame, ...]) -> bool:
    """Whether a variable of the failing chain belongs to a function of the joined chain."""
    home = failing[depth] if depth < len(failing) else None
    return home is not None and any(
        (f.file, f.function) == (home.file, home.function) for f in joined
    )


def _overtaken(
    story: Story, syntax: Syntax, built: tuple[Frame, ...], joined: tuple[Frame, ...]
) -> frozenset[str]:
    """Variables that got another value between the failing line and the joined one.

    They cannot have carried anything from one turn into the next.
    """
    names: set[str] = set()
    for frame in _failing(story):
        home = (frame.file, frame.function)
        taken = next((f for f in joined if (f.file, f.function) == home), None)
        if taken is None:
            continue
        made = [f for f in built if (f.file, f.function) == home]
        spoken = [s for s in map(syntax.statement, (taken, *made)) if s is not None]
        plain = {n for s in spoken for n in (*s.reads, *s.stores) if n.isidentifier()}
        names.update(name for name in plain if syntax.rebinds(frame, name, taken.line))
    return frozenset(names)


def _carried(
    made: list[tuple[Frame, Statement | None]], taken: list[tuple[Frame, Statement | None]]
) -> list[tuple[str, float]]:
    """Names that one line stores and another reads, level by level of the call chains."""
    result: dict[str, float] = {}
    for frame, stores in made:
        for other, reads in taken:
            if stores is None or reads is None:
                continue
            same_function = (frame.file, frame.function) == (other.file, other.function)
            for name in stores.stores:
                attribute = "." in name
                for taken_name in reads.reads:
                    if name == taken_name or (
                        attribute and "." in taken_name and last_part(name) == last_part(taken_name)
                    ):
                        # Where a line both stores and reads a name, the value goes round.
                        # Across functions, equal plain names are often an argument handed on.
                        points = 58.0 if same_function else 50.0 if attribute else 30.0
                        result[taken_name] = max(result.get(taken_name, 0.0), points)
    return list(result.items())


def _spell_as_written(
    candidates: dict[str, Candidate], live: list[Candidate], written: tuple[str, ...]
) -> None:
    """`self.hidden`, not `model.hidden`, when that is what the lines in question say."""
    for candidate in live:
        container = _container(candidate.name)
        if container in written and not candidate.exact:
            # What is carried is the list; its elements are never spoken of.
            whole = candidates.setdefault(container, Candidate(container))
            whole.score = max(whole.score, candidate.score + 1)
        if "." not in candidate.name:
            continue
        ending = last_part(candidate.name)
        for name in written:
            if "." in name and last_part(name) == ending and name != candidate.name:
                spelled = candidates.setdefault(name, Candidate(name))
                spelled.score = max(spelled.score, candidate.score + 1)
                break


def _spellings(ranked: list[Candidate]) -> list[str]:
    names: list[str] = []
    for candidate in ranked:
        if candidate.score < 0.5 * ranked[0].score:
            break
        whole = _container(candidate.name)
        # A slice is a part that has no name of its own; an element has one.
        sliced = whole is not None and ":" in candidate.name[len(whole) :]
        for name in (whole, candidate.name) if sliced else (candidate.name, whole):
            if name and name not in names:
                names.append(name)
    return names


def _container(name: str) -> str | None:
    """`outputs` for `outputs[3]`: the variable, when the name ends in an index."""
    match = re.fullmatch(r"(.*?)(\[[^\]]*\])+", name)
    return match.group(1) if match else None


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name and name != "_"))
