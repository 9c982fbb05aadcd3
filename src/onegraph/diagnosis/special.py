"""Rules for errors that only arise with DDP's hooks or in compiled regions."""

from __future__ import annotations

from dataclasses import replace

from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import Failure, Finding, Remedy, Site, Trace, messages


def rule(trace: Trace) -> list[Finding]:
    """A finding for a parameter that is ready twice, and for donated buffers."""
    failure = trace.failure
    if failure is None or failure.kind != "engine":
        return []
    symptom = messages.symptom_of(failure.message)
    if symptom == messages.READY_TWICE:
        return [_ready_twice(trace, failure)]
    return [_donated(trace, failure)] if symptom == messages.DONATED else []


def _ready_twice(trace: Trace, failure: Failure) -> Finding:
    graph, syntax = trace.graph, Syntax(trace.sources)
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    names: list[str] = []
    if failure.site is not None:
        label = "one backward, in which a parameter's gradient arrives twice"
        sites["failed"] = (replace(trace.sites[failure.site], label=label),)
    inner = [
        graph.site[node]
        for node in range(len(graph))
        if graph.name(node).startswith("CheckpointFunction") and graph.site[node] >= 0
    ]
    if inner:
        site = trace.sites[max(set(inner), key=inner.count)]
        label = f"ran under {len(inner)} reentrant checkpoints, each with a backward of its own"
        sites["built"] = (replace(site, label=label),)
        statement = syntax.statement(site.frames[0]) if site.frames else None
        names = list(statement.reads[:1]) if statement is not None else []
        if names:
            names += [n for n in (names[0].rpartition(".")[2],) if n not in names]
    else:
        unknown["built"] = "no reentrant checkpoint is in the graph: the module may run twice"
    it = f"`{names[0]}`" if names else "a parameter"
    return Finding(
        level="error",
        symptom=messages.READY_TWICE,
        cause="reentrant-checkpoint" if inner else "several-losses-one-graph",
        certainty="proved" if inner else "likely",
        summary=f"The gradients of {it} arrive more than once in one iteration, and DDP counts on "
        "their arriving once.",
        names=tuple(names),
        sites=sites,
        unknown=unknown,
        headline=f"DDP is told twice in one iteration that the gradients of {it} are there",
        why="a reentrant checkpoint runs a backward of its own inside backward, and DDP's hook "
        "fires in each: a module that runs under two of them is ready twice."
        if inner
        else "DDP sends a gradient as soon as it is there, so each may come once an iteration.",
        remedies=(
            Remedy(
                title="Pass use_reentrant=False to checkpoint",
                effect="same",
                effect_note="all is then one backward, and each gradient arrives once",
            ),
            Remedy(
                title="Call model._set_static_graph() if reentrant checkpoints must stay",
                effect="same",
                effect_note="DDP then counts the uses of the first iteration",
            ),
        ),
        avoid="find_unused_parameters=True, which is about gradients that never arrive.",
        order=("failed", "built"),
    )


def _donated(trace: Trace, failure: Failure) -> Finding:
    sites: dict[str, tuple[Site, ...]] = {}
    if failure.site is not None:
        label = "asks to keep a graph whose buffers are reused in place"
        sites["failed"] = (replace(trace.sites[failure.site], label=label),)
        sites["kept"] = (replace(trace.sites[failure.site], label=None),)
    regions = [
        trace.graph.site[node]
        for node in range(len(trace.graph))
        if "CompiledFunction" in trace.graph.name(node) and trace.graph.site[node] >= 0
    ]
    if regions:
        label = "the compiled region, lines inside are not kept"
        sites["built"] = (replace(trace.sites[regions[0]], label=label),)
    return Finding(
        level="error",
        symptom=messages.DONATED,
        cause="compile",
        certainty="proved",
        summary="A compiled region's backward reuses the memory of what it saved, so its graph "
        "cannot be kept with retain_graph or create_graph.",
        sites=sites,
        headline="a compiled region's graph cannot be kept for a second backward",
        why="to save memory, the compiled backward writes over what the forward pass saved; "
        "a second backward would find other values there.",
        remedies=(
            Remedy(
                title="Add the losses and call backward once, without retain_graph",
                effect="same",
                effect_note="the sum's gradient is the sum of the gradients",
            ),
            Remedy(
                title="Set torch._functorch.config.donated_buffer = False before compiling",
                effect="same",
                effect_note="the compiled backward then keeps what it saved, at a cost in memory",
            ),
        ),
        order=("failed", "built"),
    )
