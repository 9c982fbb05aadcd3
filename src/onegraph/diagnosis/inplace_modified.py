"""The rule for `modified by an inplace operation`: who needed the tensor, and who wrote to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from onegraph.diagnosis.naming import last_part, name_of
from onegraph.diagnosis.story import between
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import (
    Change,
    Edit,
    EngineCall,
    Finding,
    Overwritten,
    Remedy,
    Site,
    Trace,
    Write,
)

ORDER = ("mutated", "needed", "joined", "failed", "kept")

# What `inplace=True` turns into, where torch's own modules and functions make the call.
_ACTIVATIONS = frozenset(
    {"relu_", "relu6_", "hardtanh_", "leaky_relu_", "elu_", "selu_", "celu_", "silu_", "mish_"}
    | {"hardswish_", "hardsigmoid_", "rrelu_", "threshold_", "dropout_", "alpha_dropout_"}
    | {"feature_dropout_", "feature_alpha_dropout_"}
)


def rule(trace: Trace) -> list[Finding]:
    """A finding when a tensor that the graph had saved was written in place before backward."""
    failure = trace.failure
    if failure is None or failure.overwritten is None:
        return []
    changed = failure.overwritten
    syntax = Syntax(trace.sources)
    failed = next((c for c in trace.calls if c.ordinal == failure.step), None)
    kept = _kept(trace, failed)
    first = changed.writes[0] if changed.writes else None
    cause = _cause(trace, changed, first)
    names = _names(trace, syntax, changed, first)
    it = f"`{names[0]}`" if names else "a tensor"
    sites, unknown = _sites(trace, syntax, changed, failed, kept, it)
    carried = _carried(trace, syntax, changed, failed, kept)
    hidden = carried is not None and cause == "optimizer-step-between"
    if hidden and carried is not None:
        sites.update(carried.sites)
        names = tuple(dict.fromkeys((*carried.names, *names)))
    proved = changed.certain and "mutated" in sites
    return [
        Finding(
            level="error",
            symptom="inplace-modified",
            cause=cause,
            certainty="proved" if proved else "likely",
            summary=f"{it} was changed between the forward pass and a backward that still "
            "needs its old value.",
            names=names,
            sites=sites,
            unknown=unknown,
            headline=f"{it} was changed after the forward pass that still needs it",
            why=_why(cause, it, names[0] if hidden else None, kept),
            remedies=_remedies(trace, syntax, cause, it, names, sites, failed, kept, hidden=hidden),
            avoid=_avoid(cause, kept),
            order=ORDER,
        )
    ]


def _cause(trace: Trace, changed: Overwritten, first: Write | None) -> str:
    """Each line is one sentence of the contract's table."""
    if first is None:
        return "optimizer-step-between" if changed.kind == "parameter" else "inplace-op"
    if first.step_of_optimizer:
        return "optimizer-step-between"
    if changed.kind == "buffer" or first.op == "batch_norm":
        return "buffer-update"
    if first.op in _ACTIVATIONS and (first.library is not None or _by_function(trace, first)):
        return "inplace-activation"
    return "no-grad-inplace-write" if first.silent else "inplace-op"


@dataclass(frozen=True, slots=True)
class _Carried:
    """What leads from the failing step into the one whose values were written over."""

    names: tuple[str, ...]
    sites: dict[str, tuple[Site, ...]]


def _carried(
    trace: Trace,
    syntax: Syntax,
    changed: Overwritten,
    failed: EngineCall | None,
    kept: EngineCall | None,
) -> _Carried | None:
    """The tensor that went from a kept step into the failing one, when its line is the same."""
    if failed is None or kept is None or kept.site != failed.site:
        return None
    story = between(trace, changed.node, failed, kept)
    if story is None:
        return None
    graph = trace.graph
    if not any(story.rebuilt(b.old) for b in story.crossing):
        return None  # one forward pass, and a backward for each part of it
    bridge = min(story.crossing, key=lambda b: (graph.site[b.new] < 0, graph.number[b.new], b.slot))
    sites: dict[str, tuple[Site, ...]] = {}
    for role, node in (("built", bridge.old), ("joined", bridge.new)):
        if graph.site[node] >= 0:
            sites[role] = (trace.sites[graph.site[node]],)
    return _Carried(name_of(story, syntax, bridge).names, sites)


def _by_function(trace: Trace, write: Write) -> bool:
    """Whether the code says `F.relu_(x)`, a function, and not `x.relu_()`, a method of a tensor."""
    code = trace.sites[write.site].code if write.site is not None else ""
    return re.match(r"(\w+\.)*(functional|F|nn|torch)\.\w+_\(", code) is not None


def _names(
    trace: Trace, syntax: Syntax, changed: Overwritten, first: Write | None
) -> tuple[str, ...]:
    """The parameter's name, or what the writing line calls the tensor, then its live names."""
    live = changed.names
    if changed.kind in ("parameter", "buffer", "leaf") and live:
        return live
    written = _written(trace, syntax, first)
    written = [re.sub(r"(\.detach\(\)|\.data)$", "", name) for name in written]
    spelled = [name for name in live if last_part(name) in {last_part(w) for w in written}]
    needing = _read_by(trace, syntax, changed)
    if not written:
        written = needing[:1] if not live else []
    # A loop's variable stood for it only while it was written to.
    known = [name for name in live if name in needing and not set(written) & set(needing)]
    return tuple(dict.fromkeys((*known, *written, *spelled, *live)))[:4]


def _written(trace: Trace, syntax: Syntax, write: Write | None) -> list[str]:
    """What the statement that wrote says it writes to."""
    site = trace.sites[write.site] if write is not None and write.site is not None else None
    statement = syntax.statement(site.frames[0]) if site is not None and site.frames else None
    if write is None or statement is None:
        return []
    if write.library is None and statement.written:
        return [statement.written]
    if write.library is None and statement.stores:
        stored = [name for name in statement.stores if not name.endswith("]")]
        return (stored or list(statement.stores))[:1]
    # A module or function of torch was given the tensor.
    return list(statement.reads[-1:])


def _read_by(trace: Trace, syntax: Syntax, changed: Overwritten) -> list[str]:
    """What the statement that needed the tensor reads, or stores where its own result is meant."""
    number = trace.graph.site[changed.node]
    frames = trace.sites[number].frames if number >= 0 else ()
    statement = syntax.statement(frames[0]) if frames else None
    if statement is None:
        return []
    return list(statement.stores if changed.attribute in ("result", "output") else statement.reads)


def _sites(
    trace: Trace,
    syntax: Syntax,
    changed: Overwritten,
    failed: EngineCall | None,
    kept: EngineCall | None,
    it: str,
) -> tuple[dict[str, tuple[Site, ...]], dict[str, str]]:
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    failure = trace.failure
    if failure is not None and failure.site is not None:
        step = failed.step if failed else None
        label = "needs the value from before that write"
        sites["failed"] = (replace(trace.sites[failure.site], step=step, label=label),)
    writer = next((w for w in changed.writes if w.site is not None), None)
    if writer is not None and writer.site is not None:
        site = trace.sites[writer.site]
        if writer.step_of_optimizer:
            site = _step_line(syntax, site)
        sites["mutated"] = (replace(site, label=_what_it_wrote(changed, writer, it)),)
    else:
        unknown["mutated"] = (
            "the write was made where nothing was recorded"
            if trace.lines_recorded
            else "lines were not recorded; `onegraph run` or `onegraph.record` record them"
        )
    needed = trace.graph.site[changed.node]
    if needed >= 0:
        seen = f", transposed to {list(changed.shape)}," if changed.transposed else ""
        label = f"had saved {it}{seen} for its backward"
        sites["needed"] = (replace(trace.sites[needed], label=label),)
    else:
        unknown["needed"] = "the node was made where nothing was recorded"
    if kept is not None and kept.site is not None:
        label = "retain_graph kept the graph alive, not the values"
        sites["kept"] = (replace(trace.sites[kept.site], step=kept.step, label=label),)
    return sites, unknown


def _step_line(syntax: Syntax, site: Site) -> Site:
    """The line that calls ``step()``, where an optimizer of the user's own has written."""
    for level, frame in enumerate(site.frames[1:], start=1):
        if site.frames[level - 1].function.endswith(".step"):
            statement = syntax.statement(frame)
            if statement is not None and ".step(" in statement.text:
                return syntax.site(site, level)
    return site


def _what_it_wrote(changed: Overwritten, writer: Write, it: str) -> str:
    versions = ""
    if changed.version_saved is not None and changed.version_now is not None:
        versions = f" (version {changed.version_saved} → {changed.version_now})"
    if writer.tensors > 1:
        return f"wrote {writer.tensors} tensors in place{versions}"
    return f"wrote to {it} in place{versions}"


def _why(cause: str, it: str, carried: str | None, kept: EngineCall | None) -> str:
    begun = f"the forward pass saved {it} to compute gradients with"
    texts = {
        "optimizer-step-between": f"{begun}; new values were then written into the same memory, "
        "and a gradient from those would be wrong.",
        "inplace-op": f"{begun}; the write then changed that very memory, and a gradient from the "
        "new values would be wrong.",
        "inplace-activation": f"{begun}; inplace=True then wrote the activation over it.",
        "buffer-update": f"{begun}; the update then changed the buffer itself, before the "
        "backward that needs its old values.",
        "no-grad-inplace-write": f"{begun}; no_grad and detach keep a write out of the graph, but "
        "it still changes the memory that the graph had saved.",
    }
    text = texts[cause]
    if carried is not None:
        return (
            f"`{carried}` still carries the graph of an earlier step, which saved {it}; the "
            "optimizer has written over it since. retain_graph=True hid the second backward."
        )
    if kept is not None:
        text += (
            " retain_graph=True kept the graph, so this came to light instead of a second backward."
        )
    return text


def _avoid(cause: str, kept: EngineCall | None) -> str:
    if kept is not None or cause == "optimizer-step-between":
        return "retain_graph=True, which keeps the graph but not the old values."
    if cause == "no-grad-inplace-write":
        return ".data instead of no_grad: it hides the write, and the gradient is wrong."
    return ""


def _remedies(
    trace: Trace,
    syntax: Syntax,
    cause: str,
    it: str,
    names: tuple[str, ...],
    sites: dict[str, tuple[Site, ...]],
    failed: EngineCall | None,
    kept: EngineCall | None,
    *,
    hidden: bool,
) -> tuple[Remedy, ...]:
    later = Remedy(
        title=f"Write to {it} after the backward that needs its old value",
        effect="same",
        effect_note="the graph is used up by then",
    )
    if hidden:
        return (
            Remedy(
                title="Drop retain_graph=True, and mend the second backward that it hides",
                effect="truncates",
                effect_note=f"mostly by detaching `{names[0]}` between the steps; run onegraph "
                "again without it to be told where",
            ),
        )
    if cause == "optimizer-step-between":
        again = kept is not None and failed is not None and kept.site == failed.site
        return _of_step(trace, sites, again=again)
    if cause == "buffer-update":
        spoken = _spoken(syntax, sites, names[0]) if names else "buffer"
        copy = Remedy(
            title=f"Use a copy in the forward pass: {spoken}.clone()",
            effect="same",
            effect_note="the graph then saves the copy, which no update touches",
        )
        return later, copy
    if cause == "inplace-activation":
        return (
            Remedy(
                title="Use the activation without inplace=True",
                effect="same",
                effect_note="it then makes a new tensor, at the cost of its memory",
            ),
        )
    if cause == "no-grad-inplace-write":
        anew = Remedy(
            title=f"Compute with a copy: {names[0] if names else 'x'}.clone() in the forward pass",
            effect="same",
            effect_note="the graph then saves the copy, which the write does not touch",
        )
        return later, anew
    out_of_place = Remedy(
        title=f"Make a new tensor instead of writing over {it}",
        effect="same",
        effect_note="the old value stays for backward, at the cost of its memory",
        edit=_out_of_place(syntax, sites),
    )
    return (out_of_place,)


def _spoken(syntax: Syntax, sites: dict[str, tuple[Site, ...]], name: str) -> str:
    """A name as the line that needed the tensor spells it."""
    found = sites.get("needed")
    statement = syntax.statement(found[0].frames[0]) if found and found[0].frames else None
    reads = statement.reads if statement is not None else ()
    return next((read for read in reads if last_part(read) == last_part(name)), name)


def _out_of_place(syntax: Syntax, sites: dict[str, tuple[Site, ...]]) -> Edit | None:
    """`x = x + y` for `x += y`, and the like."""
    found = sites.get("mutated")
    frame = found[0].frames[0] if found and found[0].frames else None
    edited = syntax.out_of_place(frame) if frame is not None else None
    statement = syntax.statement(frame) if frame is not None else None
    if not found or edited is None or statement is None:
        return None
    change = Change(found[0].file, statement.line, statement.end_line, edited)
    return Edit(edited, (change,))


def _of_step(
    trace: Trace, sites: dict[str, tuple[Site, ...]], *, again: bool
) -> tuple[Remedy, ...]:
    """One backward for all losses, or a second forward: which one fits the optimizers' shares."""
    together = Remedy(
        title="Finish every backward of this forward before the write",
        effect="changes",
        effect_note="both losses then use the same weights, and one step follows both",
        edit=_summed(sites),
    )
    if again:
        together = replace(
            together,
            title="Add the losses up, call backward once without retain_graph, and step after it",
            effect_note="all losses then use the same weights, and one step follows them",
        )
    anew = Remedy(
        title="Run the forward pass again after the write",
        effect="same",
        effect_note="the second loss then uses the new weights; costs a forward pass",
    )
    written = {name for stepped in trace.stepped for name in stepped.names}
    # Where the step leaves some of the graph's weights alone, the losses have optimizers of their
    # own, and adding them up would train each with the other's.
    one_optimizer = set(trace.graph.leaves.values()) - {""} <= written
    return (together, anew) if one_optimizer else (anew, together)


def _summed(sites: dict[str, tuple[Site, ...]]) -> Edit | None:
    losses = []
    for role in ("kept", "failed"):
        code = sites[role][0].code if role in sites else ""
        name = re.fullmatch(r"([\w.]+)\.backward\(.*\)", code)
        losses.append(name.group(1) if name and not name.group(1).endswith("autograd") else None)
    one, two = losses
    return Edit(f"({one} + {two}).backward()") if one and two and one != two else None


def _kept(trace: Trace, failed: EngineCall | None) -> EngineCall | None:
    """The last earlier call that kept this graph."""
    if failed is None:
        return None
    earlier = [
        c for c in trace.calls if c.ordinal < failed.ordinal and c.retain and c.parent is None
    ]
    return earlier[-1] if earlier else None
