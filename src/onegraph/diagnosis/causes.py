"""Decides which cause of the contract a second backward has, from its story."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onegraph.diagnosis.case import Case, outside_loop, rebuilt, same_turn
from onegraph.diagnosis.naming import Naming, last_part
from onegraph.diagnosis.shapes import (
    compared,
    compiled_region,
    part_of_root,
    rescales,
    restated,
    running_sum,
    sliced,
    target_in_source,
    target_side,
)
from onegraph.diagnosis.story import Bridge


@dataclass(frozen=True, slots=True)
class Verdict:
    """A cause, the bridge that shows it, and the one further down where the freed part begins."""

    cause: str
    bridge: Bridge | None
    deeper: Bridge | None
    naming: Naming | None
    inferred: str | None = None


# What people call a tensor that is meant to be a constant in the loss.
_TARGETS = re.compile(
    r"(^|_)(target|label|teacher|advantage|return|baseline|reference|pseudo|old_log_?p|"
    r"old_log_?prob|log_?p_old|log_?prob_old)s?($|_)",
    re.IGNORECASE,
)


def decide(case: Case) -> Verdict:
    """The cause; each branch is one sentence of the contract's table."""
    story = case.story
    failed, freed = story.failed, story.freed
    time_bridge, share_bridge = case.time_bridge, case.share_bridge
    entry = time_bridge or share_bridge
    # Where the later graph meets what the earlier call walked: at once, or through a part that was
    # made before it and not walked then.
    meeting = share_bridge or entry
    if time_bridge is not None and (
        story.shared[time_bridge.old] or (share_bridge and case.one_line(share_bridge))
    ):
        meeting = time_bridge

    def verdict(cause: str, bridge: Bridge | None = entry, inferred: str | None = None) -> Verdict:
        deeper = share_bridge if share_bridge != bridge else None
        if bridge is share_bridge and time_bridge is not None and cause == "carried-state":
            deeper = share_bridge
        return Verdict(cause, bridge, deeper, case.naming, inferred)

    if story.trace.failure is not None and story.trace.failure.kind == "saved-access":
        return verdict("saved-tensor-access", None)
    if failed is None or freed is None:
        return verdict("several-losses-one-graph", inferred="no earlier call was seen")
    if failed.inside == "checkpoint" or freed.inside == "checkpoint":
        return verdict("reentrant-checkpoint")
    if story.same_root:
        if freed.kind == "grad" and failed.kind == "backward":
            return verdict("grad-then-backward", None)
        if story.rows:
            return verdict("sliced-or-blocked", None)
        return verdict("same-loss-twice", None)
    whole = part_of_root(case)
    if entry is None and whole is not None:
        return verdict("sliced-or-blocked", whole)
    if entry is None:
        return verdict("several-losses-one-graph", None, "the two graphs' meeting point")
    within = same_turn(case, entry.old)
    if freed.kind == "grad" and failed.kind == "backward" and within:
        return verdict("grad-then-backward", meeting)
    if compiled_region(case, share_bridge or entry) and within:
        return verdict("compile", share_bridge or entry)
    if not within and running_sum(case):
        return verdict("running-sum-loss")
    if restated(case) and not rebuilt(case, entry):
        return verdict("same-loss-twice", time_bridge)
    for bridge in (time_bridge, share_bridge):
        if bridge is not None and (target_side(case, bridge) or target_in_source(case, bridge)):
            return verdict("undetached-target", bridge)
    if within and _recurs(case, entry):
        return verdict("carried-state")
    if not within and rebuilt(case, entry):
        return verdict("carried-state")
    if not within and _seems_rebuilt(case, entry):
        return verdict("carried-state", inferred="the kind of node, for want of lines")
    for bridge in (share_bridge, time_bridge):
        cut = sliced(case, bridge)
        if cut is not None:
            return verdict("sliced-or-blocked", cut)
    if within and meeting is not None and _read_again(case, meeting):
        return verdict("cached-on-module", meeting)
    if within:
        return verdict("several-losses-one-graph", meeting)
    if time_bridge is None or (meeting is share_bridge and rescales(case)):
        # Both losses stood before the first backward: one forward, several losses.
        return verdict("several-losses-one-graph", share_bridge)
    if story.crossed(entry.old) is None:
        return verdict("carried-state")
    called = last_part(case.naming.best or "") if case.naming is not None else ""
    if _TARGETS.search(called) and compared(case, entry):
        return verdict("undetached-target", inferred="what the variable is called")
    if _stored_on_object(case, entry):
        return verdict("cached-on-module")
    return verdict("built-outside-loop")


def _recurs(case: Case, bridge: Bridge) -> bool:
    """Whether one line both takes the old tensor and makes its successor: `m = f(m, x)`.

    Then the tensor is a state, even when both backward calls belong to one loop turn.
    """
    graph = case.graph
    one, other = case.frames(bridge.old), case.frames(bridge.new)
    if not one or not other or graph.site[bridge.new] < 0:
        return False
    if (one[0].file, one[0].line) != (other[0].file, other[0].line):
        return False
    statement = case.syntax.statement(one[0])
    names = set(case.naming.names if case.naming else ())
    return statement is not None and bool(names & set(statement.stores) & set(statement.reads))


def _seems_rebuilt(case: Case, bridge: Bridge) -> bool:
    """Without lines: whether the tensor's name holds a like tensor of this step by now."""
    naming = case.naming
    return (
        case.graph.site[bridge.old] < 0
        and naming is not None
        and naming.binding is not None
        and not naming.exact
    )


def _stored_on_object(case: Case, bridge: Bridge) -> bool:
    """Whether the tensor was kept on an object, or by a cache, when it was made."""
    naming = case.naming
    if naming is None:
        return False
    binding = naming.binding
    if binding is not None and naming.exact:
        if binding.holder == "cache":
            return True
        if binding.holder in ("local", "generator", "closure", "default"):
            return False
    for frame in case.frames(bridge.old):
        statement = case.syntax.statement(frame)
        if statement is not None and any(_attribute(name) for name in statement.stores):
            return True
    return False


def _read_again(case: Case, bridge: Bridge) -> bool:
    """Whether one expression took a stored tensor in for the earlier loss and again for this one.

    Then, when it was made before the loop, each loss had a forward pass of its own, of which the
    tensor is no part.
    """
    story, freed = case.story, case.story.freed
    if freed is None or not story.born_after(bridge.new, freed):
        return False
    runs = story.trace.reruns.get(case.graph.site[bridge.new], ())
    if not outside_loop(case, bridge.old):
        return False
    before = any(case.graph.epoch[bridge.old] <= epoch < freed.ordinal for epoch in runs)
    return before and _stored_on_object(case, bridge)


def _attribute(name: str) -> bool:
    return "." in name.partition("[")[0]
