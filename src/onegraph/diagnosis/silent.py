"""Rules for what raises nothing: lost gradients, graphs that grow, graphs kept for nothing."""

from __future__ import annotations

from dataclasses import replace

from onegraph.diagnosis.naming import last_part, owners
from onegraph.diagnosis.no_history import WORDS, line_of, named_by, remedy_for, words_of
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import (
    CutOff,
    Finding,
    Frame,
    Growing,
    Lost,
    Remedy,
    Retained,
    Shared,
    Site,
    Trace,
)

# A module that no line cuts off may be one that few samples are routed to: it has to be left out
# for so many steps before that is called a fault.
NEVER_USED_AFTER = 25

# How a parameter is called that only an optimizer leads to.
_LISTED = ".param_groups["
_ARRAYS = ("numpy", "__array__", "tolist")


def rule(trace: Trace) -> list[Finding]:
    """Warnings about a program that ran to its end."""
    if trace.failure is not None:
        return []
    syntax = Syntax(trace.sources)
    return [*_lost(trace, syntax), *_growing(trace, syntax), *_retained(trace)]


# -- gradients that never come ---------------------------------------------------------------------


def _lost(trace: Trace, syntax: Syntax) -> list[Finding]:
    groups: dict[tuple[str, int | None], list[Lost]] = {}
    for lost in trace.lost:
        if lost.kind == "zero":
            groups.setdefault(("zero-gradient-op", None), []).append(lost)
            continue
        number = _blamed(trace, lost)
        if number is not None:
            groups.setdefault((trace.cuts[number].cause, number), []).append(lost)
        elif not lost.cuts and lost.steps >= NEVER_USED_AFTER and not _routed(lost.name):
            groups.setdefault(("unused-module", None), []).append(lost)
    found = []
    for (cause, number), members in groups.items():
        orphaned = _orphaned(members) if cause == "unused-module" else None
        found.append(orphaned or _lost_here(trace, syntax, cause, number, members))
    return found


def _blamed(trace: Trace, lost: Lost) -> int | None:
    """The cut that a parameter's gradient ends at: one whose result went into a graph.

    Where an optimizer moves nothing at all, any line that took the values will do.
    """
    cuts = [(k, trace.cuts[k]) for k in lost.cuts]
    joined = [k for k, cut in cuts if cut.joined and cut.site is not None]
    if joined:
        return joined[0]
    arrays = [k for k, cut in cuts if cut.func in _ARRAYS and cut.site is not None]
    if arrays:
        return arrays[0]  # where an array goes cannot be seen
    if trace.moved:
        return None
    taken = [(cut.runs, -k) for k, cut in cuts if cut.cause != "no-grad-scope" and cut.site]
    return -max(taken)[1] if taken else None


def _orphaned(lost: list[Lost]) -> Finding | None:
    """The finding when nothing but an optimizer leads to some parameters any more."""
    holders = {one.name.partition(_LISTED)[0] for one in lost if _LISTED in one.name}
    if len(holders) != 1 or not all(_LISTED in one.name for one in lost):
        return None
    holder = holders.pop()
    it = f"`{holder}`"
    headline = f"{it} trains {len(lost)} tensors that nothing else leads to"
    return Finding(
        level="warning",
        symptom="lost-gradient",
        cause="unused-module",
        certainty="likely",
        summary=f"{headline}; they got no gradient in {max(one.steps for one in lost)} steps.",
        names=(holder,),
        sites={},
        unknown={"cut": "no line was seen that uses them"},
        shared=Shared(0, tuple(one.name for one in lost)),
        headline=headline,
        why=f"they got no gradient in {max(one.steps for one in lost)} steps: most likely the "
        "model was made again, or moved to new parameters, after the optimizer was made.",
        remedies=(
            Remedy(
                title="Make the optimizer last, from the parameters of the model that is used",
                effect="same",
                effect_note="an optimizer trains the tensors that it was given, whatever becomes "
                "of their names",
            ),
        ),
        order=("cut",),
    )


def _routed(name: str) -> bool:
    """Whether a parameter belongs to one of several numbered modules, as experts are."""
    parts = name.replace("[", ".").replace("]", "").split(".")
    return _LISTED not in name and any(part.isdigit() for part in parts)


def _lost_here(
    trace: Trace, syntax: Syntax, cause: str, number: int | None, lost: list[Lost]
) -> Finding:
    names = [one.name for one in lost if one.name]
    steps = max(one.steps for one in lost)
    listed = ", ".join(f"`{n}`" for n in names[:2]) or "a parameter"
    more = f" and {len(lost) - 2} more" if len(lost) > 2 else ""
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    spoken: list[str] = []
    func = ""
    cut: CutOff | None = trace.cuts[number] if number is not None else None
    site = line_of(trace, cut) if cut is not None else None
    if cut is not None:
        func, spoken = cut.func, named_by(trace, syntax, cut)
    elif cause == "zero-gradient-op" and trace.zero:
        place, func = trace.zero[0]
        site = trace.sites[place]
        statement = syntax.statement(site.frames[0]) if site.frames else None
        spoken = list(statement.stores[:1]) if statement is not None else []
    if site is not None:
        label = words_of(cut) if cut is not None else WORDS[cause].format(func=func)
        sites["cut"] = (replace(site, label=label),)
    else:
        unknown["cut"] = "no line was seen that uses it"
    got = "only zeros for gradients" if cause == "zero-gradient-op" else "no gradient"
    whys = {
        "unused-module": "nothing that was back-propagated was computed from it.",
        "zero-gradient-op": f"{func} is flat, so the gradient of everything before it is exactly "
        "zero; nothing raises, and nothing is learned.",
    }
    default = "the loss was computed from its values, but without its history."
    never = Remedy(
        title="Use it in the forward pass, or leave it out of the optimizer",
        effect="same",
        effect_note="as it is, it keeps its initial values",
    )
    return Finding(
        level="warning",
        symptom="lost-gradient",
        cause=cause,
        certainty="proved" if cut is not None and cut.joined else "likely",
        summary=f"{listed}{more} got {got} in {steps} steps.",
        names=tuple(dict.fromkeys((*owners(names), *names[:4], *spoken)))[:8],
        sites=sites,
        unknown=unknown,
        shared=Shared(0, tuple(names)),
        headline=f"{listed}{more} got {got} in {steps} steps",
        why=whys.get(cause, default),
        remedies=(
            never if cause == "unused-module" else remedy_for(cause, func),
            *((_SPLIT,) if cause == "detach-cut" else ()),
        ),
        order=("cut",),
    )


_SPLIT = Remedy(
    title="Split the graph there instead, if the cut is to keep backward calls apart",
    effect="same",
    effect_note="onegraph.lifetime.split_at gathers the gradient and takes it on in one pass",
)


# -- graphs that grow ------------------------------------------------------------------------------


def _growing(trace: Trace, syntax: Syntax) -> list[Finding]:
    together: dict[tuple[int | None, bool], list[Growing]] = {}
    for found in trace.growing:
        key = (found.made, found.name.endswith(".grad"))
        together.setdefault(key, []).append(found)
    return [_growing_here(trace, syntax, group) for group in together.values()]


def _growing_here(trace: Trace, syntax: Syntax, group: list[Growing]) -> Finding:
    found = max(group, key=lambda g: (g.steps, -len(g.name)))
    names = list(dict.fromkeys(g.name for g in sorted(group, key=lambda g: len(g.name))))
    site = trace.sites[found.made] if found.made is not None else None
    gradient = found.name.endswith(".grad")
    kept: Site | None = None
    if gradient:
        call = next((c for c in reversed(trace.calls) if c.create and c.site is not None), None)
        kept = trace.sites[call.site] if call is not None and call.site is not None else None
    elif site is not None:
        kept, holder = _keeper(syntax, site, names, found.container)
        names = [*holder, *(n for n in names if n not in holder)]
    it = f"`{names[0]}`"
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    if kept is not None:
        what = f"{found.tensors} results" if found.container else "the history of every step"
        if gradient:
            what = "the graph of every gradient so far"
        sites["kept"] = (replace(kept, count=found.tensors, label=f"{it} holds {what}"),)
    else:
        unknown["kept"] = "the line that keeps it was not seen"
    size = _size(found)
    if found.steps:
        headline = f"the graph that {it} keeps alive grows with every step{size}"
        summary = f"{it} kept its history over {found.steps} steps, and grows with each."
    else:
        headline = f"{it} keeps {found.tensors} graphs alive that no backward uses{size}"
        summary = f"{it} holds {found.tensors} results with their graphs, which nothing uses."
    return Finding(
        level="warning",
        symptom="graph-growth",
        cause="accumulated-graph",
        certainty="proved" if found.steps else "likely",
        summary=summary,
        names=tuple(names[:6]),
        sites=sites,
        unknown=unknown,
        shared=Shared(found.nodes, ()),
        headline=headline,
        why="a tensor with history keeps alive all that it was computed from.",
        remedies=(_lighter(found, names[0], gradient),),
        order=("kept",),
    )


def _lighter(found: Growing, name: str, gradient: bool) -> Remedy:
    if gradient:
        return Remedy(
            title=f"Set {name} to None between steps, or leave create_graph=True out",
            effect="same",
            effect_note="zero_() empties the values and keeps the history",
        )
    if not found.steps:
        return Remedy(
            title="Compute under torch.no_grad(), or keep result.detach()",
            effect="same",
            effect_note="the values are the same; no graph is built or kept",
        )
    return Remedy(
        title="Keep the number: loss.item(), or loss.detach() to stay on the device",
        effect="same",
        effect_note="the value is for reading; no backward needs its history",
    )


def _size(found: Growing) -> str:
    if not found.nodes:
        return ""
    nodes, size = round(found.nodes / found.per), found.bytes / found.per
    unit = "a step" if found.steps else "each"
    text = f"{nodes:,} node{'s' if nodes != 1 else ''}"
    if size >= 1_000:
        text += f", {size / 1e6:,.1f} MB" if size >= 1e6 else f", {size / 1e3:,.1f} kB"
    return f" ({text} {unit})"


def _keeper(
    syntax: Syntax, site: Site, names: list[str], container: bool
) -> tuple[Site, list[str]]:
    """(the line that puts a result where it is kept, what it calls that place)."""
    spoken = {last_part(name) for name in names}
    if container:
        for level, frame in enumerate(site.frames):
            place = syntax.site(site, level) if level else site
            statement = syntax.statement(frame)
            if statement is not None and statement.collects:
                return place, list(statement.stores[:1])
            collected = syntax.collected(frame)
            if collected is None:
                continue
            line, name = collected
            at = replace(frame, line=line, column=None, end_line=None, end_column=None)
            code = syntax.line(frame.file, line)
            kept = replace(place, line=line, column=None, end_line=line, end_column=None, code=code)
            return replace(kept, frames=(at, *place.frames[1:])), [name]
        places = [found for name in names for found in syntax.collectors(name)]
        if len(set(places)) == 1:
            file, line, name = places[0]
            frame = Frame(file, line, "")
            kept = replace(site, file=file, line=line, column=None, end_line=line, end_column=None)
            return replace(kept, code=syntax.line(file, line), function="", frames=(frame,)), [name]
    for level, frame in enumerate(site.frames):
        statement = syntax.statement(frame)
        stored = [n for n in statement.stores if last_part(n) in spoken] if statement else []
        if stored:
            return (syntax.site(site, level) if level else site), stored[:1]
    return site, []


# -- graphs kept for nothing -----------------------------------------------------------------------


def _retained(trace: Trace) -> list[Finding]:
    if any("_saved_" in source.text for source in trace.sources.values()):
        return []  # reading a node's saved tensors is a use that no engine call shows
    return [_retained_here(trace, kept) for kept in trace.retained]


def _retained_here(trace: Trace, kept: Retained) -> Finding:
    argument = "create_graph=True" if kept.create else "retain_graph=True"
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    if kept.site is not None:
        label = f"keeps {kept.nodes} nodes in each of {kept.turns} turns"
        sites["kept"] = (replace(trace.sites[kept.site], count=kept.nodes, label=label),)
    else:
        unknown["kept"] = "the call has no line of yours in its stack"
    return Finding(
        level="warning",
        symptom="needless-retain",
        cause="needless-retain",
        certainty="proved",
        summary=f"{argument} keeps a graph that nothing used in the {kept.watched} turns that were "
        "watched.",
        sites=sites,
        unknown=unknown,
        shared=Shared(kept.nodes, ()),
        headline=f"{argument} keeps a graph that nothing uses",
        why=f"no later call walked what it kept or made, in {kept.watched} turns that were watched "
        f"of {kept.turns}; until the graph goes, its saved tensors stay in memory.",
        remedies=(
            Remedy(
                title=f"Leave {argument} out",
                effect="same",
                effect_note="the gradients are the same, and backward frees the graph as it goes",
            ),
        ),
        order=("kept",),
    )
