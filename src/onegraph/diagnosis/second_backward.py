"""The rule for `Trying to backward through the graph a second time`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onegraph.diagnosis import words
from onegraph.diagnosis.case import Case
from onegraph.diagnosis.causes import Verdict, decide
from onegraph.diagnosis.naming import Naming, choose, last_part, name_of
from onegraph.diagnosis.remedies import remedies
from onegraph.diagnosis.story import Bridge, Story, read
from onegraph.diagnosis.syntax import Syntax
from onegraph.diagnosis.telling import Telling
from onegraph.trace import Binding, Certainty, Finding, Shared, Site, State, Trace

SYMPTOM = "second-backward"
# Of more tensors that cross from step to step the names are not looked for.
MOST_CARRIED = 16


def rule(trace: Trace) -> list[Finding]:
    """One finding when the trace holds a second backward (or a read of a freed tensor)."""
    failure = trace.failure
    if failure is None or "second time" not in failure.message:
        return []
    story = read(trace)
    if story is None:
        return [words.untold(trace)]
    syntax = Syntax(trace.sources)
    case = case_of(story, syntax)
    verdict = decide(case)
    naming = _naming(story, syntax, verdict)
    sites, unknown = _sites(story, verdict, naming, syntax)
    certain = story.proved and verdict.inferred is None and not _one_expression(sites)
    certainty: Certainty = "proved" if certain else "likely"
    shared = _shared(story)
    carried, held = _carried(story, syntax, verdict)
    telling = Telling(
        story=story,
        cause=verdict.cause,
        name=naming.best if naming else None,
        naming=naming,
        sites=sites,
        shared=shared,
        syntax=syntax,
        carried=carried,
        held=held,
    )
    return [
        Finding(
            level="error",
            symptom=SYMPTOM,
            cause=verdict.cause,
            certainty=certainty,
            summary=words.summary(telling),
            names=_names(naming, carried),
            sites=words.label(telling, sites),
            unknown=unknown,
            shared=shared,
            remedies=remedies(telling),
            headline=words.headline(telling),
            why=words.why(telling),
            avoid=words.avoid(telling),
            order=words.ORDER,
        )
    ]


def case_of(story: Story, syntax: Syntax) -> Case:
    """Gather what a cause is decided from."""
    time_bridge = _first(story, story.in_time)
    share_bridge = _first(story, story.in_share)
    entry = time_bridge or share_bridge
    naming = name_of(story, syntax, entry) if entry is not None else None
    return Case(story, syntax, time_bridge, share_bridge, naming)


def _first(story: Story, bridges: Iterable[Bridge]) -> Bridge | None:
    """The bridge that was crossed first: the line that first takes the old tensor."""
    graph = story.graph
    ordered = sorted(
        bridges,
        key=lambda b: (graph.site[b.new] < 0, graph.number[b.new], b.slot),
    )
    return ordered[0] if ordered else None


def _naming(story: Story, syntax: Syntax, verdict: Verdict) -> Naming | None:
    if verdict.bridge is not None:
        return name_of(story, syntax, verdict.bridge)
    failure = story.trace.failure
    assert failure is not None
    if failure.kind == "saved-access":
        names = _of_node(story, failure.owner)
        return names
    return _of_root(story, syntax)


def _carried(story: Story, syntax: Syntax, verdict: Verdict) -> tuple[tuple[Binding, ...], bool]:
    """The live names of all tensors that cross into what was freed; whether they hold those still.

    None unless all are known: to detach some of them would not do. What goes from step to step
    may be known by what its name holds by now; anything else only by the tensor itself.
    """
    bridges = story.crossing or story.in_share
    tensors = {(b.old, b.output): b for b in bridges}
    if verdict.bridge is None or len(tensors) > MOST_CARRIED:
        return (), False
    found: dict[str, Binding] = {}
    held = True
    first = (verdict.bridge.old, verdict.bridge.output)
    for bridge in sorted(tensors.values(), key=lambda b: (b.old, b.output) != first):
        naming = name_of(story, syntax, bridge)
        if naming.binding is None or not (naming.exact or verdict.cause == "carried-state"):
            return (), False
        held = held and naming.exact
        found.setdefault(naming.binding.name, naming.binding)
    return (tuple(found.values()), held) if len(found) >= len(tensors) else ((), False)


def _names(naming: Naming | None, carried: tuple[Binding, ...]) -> tuple[str, ...]:
    """The names of the tensor, best first, then those of what crosses over with it."""
    names = naming.names if naming is not None else ()
    return tuple(dict.fromkeys((*names, *(binding.name for binding in carried))))


def _of_root(story: Story, syntax: Syntax) -> Naming | None:
    """The name of the tensor that both calls started from."""
    graph, failed = story.graph, story.failed
    if failed is None or not graph.roots:
        return None
    root = graph.roots[0]
    exact = [
        b
        for b in story.trace.bindings
        if b.node == root and (not failed.outputs or b.output == failed.outputs[0])
    ]
    site = graph.site[root]
    failing = story.trace.failure.site if story.trace.failure else None
    return choose(
        syntax,
        exact=exact,
        alike=[],
        built=story.trace.sites[site].frames if site >= 0 else (),
        joined=story.trace.sites[failing].frames if failing is not None else (),
    )


def _of_node(story: Story, owner: str | None) -> Naming:
    exact = sorted(
        (b for b in story.trace.bindings if b.node == story.raising), key=lambda b: b.steps
    )
    names = [owner] if owner else []
    names += [b.name for b in exact if b.name not in names]
    return Naming(tuple(names[:4]), bool(exact), exact[0] if exact else None, (), ())


def _shared(story: Story) -> Shared:
    """Nodes and parameters that lie below where the failing graph enters the freed one."""
    graph = story.graph
    entries = {b.old for b in (story.in_time or story.in_share)}
    if story.in_share:
        entries = {b.old for b in story.in_share} | entries
    reach = graph.reach(entries or set(graph.roots) or {story.raising})
    freed = story.freed
    nodes = 0
    names = []
    for node in range(len(graph)):
        if not reach[node]:
            continue
        if node in graph.leaves:
            if graph.leaves[node]:
                names.append(graph.leaves[node])
            continue
        if freed is None or graph.epoch[node] < freed.ordinal:
            nodes += 1
    return Shared(nodes, tuple(sorted(set(names))))


def _sites(
    story: Story, verdict: Verdict, naming: Naming | None, syntax: Syntax
) -> tuple[dict[str, tuple[Site, ...]], dict[str, str]]:
    trace, graph = story.trace, story.graph
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    failed, freed, failure = story.failed, story.freed, trace.failure
    assert failure is not None
    if failure.site is not None:
        step = failed.step if failed else None
        sites["failed"] = (replace(trace.sites[failure.site], step=step),)
    if freed is not None and freed.site is not None:
        sites["freed"] = (replace(trace.sites[freed.site], step=freed.step),)
    else:
        unknown["freed"] = (
            "no earlier backward was seen: it ran before recording began or on a thread that was "
            "not recorded"
            if freed is None
            else "the call has no line of yours in its stack"
        )
    teller = _Placing(story, syntax, naming)
    if verdict.bridge is not None:
        bridge, deeper = verdict.bridge, verdict.deeper
        made, taken = teller.pair(bridge.old, bridge.new)
        built = teller.places(bridge.old, made, deeper.old if deeper else None)
        joined = teller.places(bridge.new, taken, deeper.new if deeper else None)
    else:
        root = graph.roots[0] if graph.roots and failure.kind == "engine" else story.raising
        built = teller.places(root, teller.pair(root, None)[0], story.raising)
        joined = ()
    if built:
        sites["built"] = built
    else:
        unknown["built"] = _why_unknown(story, verdict.bridge.old if verdict.bridge else None)
    if joined:
        sites["joined"] = joined
    elif verdict.bridge is not None:
        unknown["joined"] = _why_unknown(story, verdict.bridge.new)
    return sites, unknown


def _one_expression(sites: dict[str, tuple[Site, ...]]) -> bool:
    """Whether one expression both built and failed: code run by ``exec`` has no lines."""
    return any(
        (one.place, one.column, one.end_column) == (other.place, other.column, other.end_column)
        for one in sites.get("built", ())[:1]
        for other in sites.get("failed", ())[:1]
    )


class _Placing:
    """Chooses the level of a call chain that a user would point at."""

    def __init__(self, story: Story, syntax: Syntax, naming: Naming | None) -> None:
        self._story = story
        self._syntax = syntax
        self._best = naming.best if naming else None

    def pair(self, old: int, new: int | None) -> tuple[int | None, int | None]:
        """Levels of the built and the joined chain where the name is stored and read.

        The outermost function that does both is where the user thinks of the tensor by that name;
        failing that, the outermost level that stores it and the innermost that reads it.
        """
        built, joined = self._site(old), self._site(new)
        stores = self._levels(built, stores=True)
        reads = self._levels(joined, stores=False)
        if built is not None and joined is not None:
            for i in reversed(stores):
                for j in reversed(reads):
                    one, other = built.frames[i], joined.frames[j]
                    if (one.file, one.function) == (other.file, other.function):
                        return i, j
        return (stores[-1] if stores else None), (reads[0] if reads else None)

    def places(self, node: int, level: int | None, deeper: int | None) -> tuple[Site, ...]:
        """Two places at most: the given level, then the innermost or that of a deeper node."""
        result: list[Site] = []
        for candidate in (node, deeper):
            site = self._site(candidate)
            if site is None or candidate is None:
                continue
            named = self._syntax.site(site, level) if level and candidate == node else None
            for place in (named, site):
                if place is not None and all(place.place != known.place for known in result):
                    result.append(replace(place, step=_step(self._story, candidate)))
        return tuple(result[:2])

    def _site(self, node: int | None) -> Site | None:
        number = -1 if node is None else self._story.graph.site[node]
        return self._story.trace.sites[number] if number >= 0 else None

    def _levels(self, site: Site | None, *, stores: bool) -> list[int]:
        """The levels whose statement stores (or reads) the tensor's name, innermost first."""
        best = self._best
        levels = []
        for level, frame in enumerate(site.frames if site and best else ()):
            statement = self._syntax.statement(frame)
            names = (statement.stores if stores else statement.reads) if statement else ()
            if any(_same_name(name, best or "") for name in names):
                levels.append(level)
        return levels


def _same_name(name: str, best: str) -> bool:
    return name == best or ("." in best and "." in name and last_part(name) == last_part(best))


def _step(story: Story, node: int) -> int | None:
    """The backward call whose forward pass made the node: the next one of the program's own."""
    epoch = story.graph.epoch[node]
    later = [c for c in story.trace.calls if c.ordinal > epoch and c.parent is None]
    return min((c.step for c in later), default=None) if epoch >= 0 else None


def _why_unknown(story: Story, node: int | None) -> str:
    trace = story.trace
    if not trace.lines_recorded:
        return "lines were not recorded; `onegraph run` or `onegraph.record` record them"
    kind = story.graph.name(story.raising if node is None else node)
    if "CompiledFunction" in kind:
        return "made in a torch.compile region; lines inside are not kept"
    return f"the {kind} node was made where nothing was recorded"


def freed_nodes(story: Story) -> int:
    """How many nodes of the failing graph are known to be freed."""
    return sum(1 for state in story.graph.state if state == State.FREED)
