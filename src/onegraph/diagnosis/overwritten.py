"""The rule for weights that an optimizer changed between a forward and its backward."""

from __future__ import annotations

import re
from dataclasses import replace

from onegraph.trace import Edit, EngineCall, Finding, Remedy, Site, Trace


def rule(trace: Trace) -> list[Finding]:
    """A finding when a leaf that the graph had saved was written in place before backward."""
    failure = trace.failure
    if failure is None or failure.overwritten is None:
        return []
    changed = failure.overwritten
    if changed.name is None or not changed.writes:
        return []
    graph = trace.graph
    failed = next((c for c in trace.calls if c.ordinal == failure.step), None)
    sites: dict[str, tuple[Site, ...]] = {}
    unknown = {}
    versions = ""
    if changed.version_saved is not None:
        versions = f" (version {changed.version_saved} → {changed.version_now})"
    name = f"`{changed.name}`"
    if failure.site is not None:
        sites["failed"] = (
            replace(
                trace.sites[failure.site],
                step=failed.step if failed else None,
                label="needs the value from before that write",
            ),
        )
    writers = [w for w in changed.writes if w.site is not None]
    if writers and writers[0].site is not None:
        tensors = writers[0].tensors
        sites["mutated"] = (
            replace(
                trace.sites[writers[0].site],
                label=f"wrote {tensors} tensor{'s' if tensors != 1 else ''} in place{versions}",
            ),
        )
    else:
        unknown["mutated"] = "the write was made where nothing was recorded"
    needed = graph.site[changed.node]
    if needed >= 0:
        seen = ", transposed," if changed.transposed else ""
        sites["needed"] = (
            replace(trace.sites[needed], label=f"had saved {changed.name}{seen} for its backward"),
        )
    kept = _kept(trace, failed)
    if kept is not None and kept.site is not None:
        sites["kept"] = (
            replace(trace.sites[kept.site], step=kept.step, label="kept the graph alive"),
        )
    return [
        Finding(
            level="error",
            symptom="inplace-modified",
            cause="optimizer-step-between",
            certainty="proved",
            summary=f"{name} was changed between the forward pass and a backward that still "
            "needs its old value.",
            names=(changed.name,),
            sites=sites,
            unknown=unknown,
            headline=f"{name} was changed after the forward pass that still needs it",
            why=f"the forward pass saved {name} to compute gradients with; new values were then "
            "written into the same memory, and a gradient from those would be wrong.",
            remedies=_remedies(trace, sites),
            avoid="retain_graph=True, which keeps the graph but not the old values."
            if kept is not None
            else "",
            order=("mutated", "needed", "failed", "kept"),
        )
    ]


def _remedies(trace: Trace, sites: dict[str, tuple[Site, ...]]) -> tuple[Remedy, ...]:
    """One backward for all losses, or a second forward: which one fits the optimizers' shares."""
    together = Remedy(
        title="Finish every backward of this forward before the write",
        effect="changes",
        effect_note="both losses then use the same weights, and one step follows both",
        edit=_summed(sites),
    )
    again = Remedy(
        title="Run the forward pass again after the write",
        effect="same",
        effect_note="the second loss then uses the new weights; costs a forward pass",
    )
    written = {name for stepped in trace.stepped for name in stepped.names}
    # Where the step leaves some of the graph's weights alone, the losses have optimizers of their
    # own, and adding them up would train each with the other's.
    one_optimizer = set(trace.graph.leaves.values()) - {""} <= written
    return (together, again) if one_optimizer else (again, together)


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
