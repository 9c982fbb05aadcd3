"""What to write instead, cause by cause, and what that does to the gradient."""

from __future__ import annotations

from dataclasses import replace

from onegraph.diagnosis import edits
from onegraph.diagnosis.telling import Telling
from onegraph.trace import Edit, Remedy


def remedies(t: Telling) -> tuple[Remedy, ...]:
    """What to write instead, best first."""
    return _REMEDIES[t.cause](t)


def _carried(t: Telling) -> tuple[Remedy, ...]:
    them = _listed(t)
    frame = edits.step_frame(t, t.naming.binding if t.naming else None)
    place = f"{frame.file}:{frame.line}" if frame else t.line("failed" if t.same_line else "freed")
    first = Remedy(
        title=f"Detach {them} when the step ends, after its backward"
        + (f" ({place})" if place else ""),
        effect="truncates",
        effect_note="gradients then stop at the step's start (truncated backpropagation; "
        "onegraph.lifetime.detach cuts a whole state); a parameter that only the first step used "
        "gets no gradient from later ones",
        edit=edits.detached_between_steps(t),
    )
    can_be_none = any(t.syntax.can_be_none(binding.name) for binding in t.carried)
    read = edits.detached_where_read(t) if t.held and not can_be_none else None
    if read is not None:
        first = replace(first, title=f"Detach {them} where the next step takes it in", edit=read)
    anew = Remedy(
        title=f"Start every step from a fresh {t.it} when the steps are independent",
        effect="same",
        effect_note="no step depends on another, so no gradient is lost",
    )
    if _in_place_reset(t):
        anew = replace(
            anew,
            title=f"Bind {t.it} to a new tensor instead of writing over its values",
            edit=edits.reset_anew(t),
        )
        return anew, first
    return first, anew


def _listed(t: Telling) -> str:
    """What crosses over, by name: `h` and `c`."""
    names = [f"`{binding.name}`" for binding in t.carried]
    if len(names) < 2 or t.it not in names:
        return t.it
    if len(names) > edits.MOST_NAMES:
        return f"{', '.join(names[:2])} and {len(names) - 2} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _in_place_reset(t: Telling) -> bool:
    """Whether the old tensor enters by having its values written over."""
    for bridge in (*t.story.in_time, *t.story.in_share):
        kind = t.story.graph.name(bridge.new)
        if kind.startswith(("Zero", "Fill", "CopySlices", "CopyBackward")):
            return True
    return False


def _only_trained(t: Telling) -> bool:
    """Whether the failing loss trains nothing but what lies behind the tensor."""
    story = t.story
    reach = story.graph.reach({b.old for b in story.crossing or story.in_share})
    return bool(story.graph.leaves) and all(reach[leaf] for leaf in story.graph.leaves)


def _outside(t: Telling) -> tuple[Remedy, ...]:
    at = f" ({t.line('built')})" if t.line("built") else ""
    where = "inside the loop, once for each backward"
    if not t.loops:
        where = "again for the second backward"
    using, failing = t.frames("joined"), t.frames("failed")
    function = failing[0].function if failing else ""
    elsewhere = all(frame.function != function for frame in t.frames("built"))
    if elsewhere and using and using[0].function == function and not function.endswith(">"):
        where = f"inside `{function.rpartition('.')[2]}`, once for each backward"
    again = Remedy(
        title=f"Compute {t.it} {where}{at}",
        effect="same",
        effect_note="every backward then has a graph of its own, made with the current weights",
    )
    cut = Remedy(
        title=f"Detach {t.it} if nothing behind it is to be trained",
        effect="changes",
        effect_note="what made it gets no gradient any more",
        edit=edits.detached_where_read(t),
    )
    summed = Remedy(
        title="Add the losses up and call backward once" + (", after the loop" if t.loops else ""),
        effect="same",
        effect_note="the sum's gradient is the sum of the gradients, with one optimizer step; "
        "onegraph.lifetime.split_at gives the same and frees each turn's graph",
    )
    return (again, summed) if _only_trained(t) else (again, cut, summed)


def _cached(t: Telling) -> tuple[Remedy, ...]:
    again = Remedy(
        title=f"Compute {t.it} where it is used, in forward, instead of keeping it",
        effect="same",
        effect_note="every forward pass builds its own graph, with the current weights",
    )
    cut = Remedy(
        title=f"Store {t.it} detached if nothing behind it is to be trained",
        effect="changes",
        effect_note="what made it gets no gradient any more",
        edit=edits.detached_where_read(t),
    )
    return (again,) if _only_trained(t) else (again, cut)


def _several(t: Telling) -> tuple[Remedy, ...]:
    summed = Remedy(
        title="Add the losses and call backward once",
        effect="same",
        effect_note="the sum's gradient is the sum of the gradients; any optimizer step then "
        "comes after it (onegraph.lifetime.backward_sum also gives each loss as a number)",
        edit=edits.summed(t, "freed", "failed"),
    )
    again = Remedy(
        title="Run the forward pass again for the second loss",
        effect="same",
        effect_note="costs a forward pass; the second loss then uses the weights as they are now",
    )
    first = t.line("freed") or "the first backward"
    cut = Remedy(
        title=f"Detach {t.it} in the loss that is not meant to train what made it",
        effect="changes",
        effect_note="that loss no longer reaches what made it",
    )
    stepped = t.stepped
    if stepped is None:
        return summed, cut
    if stepped.isdisjoint(t.shared.parameters):
        # The step after the first loss trains other weights than those behind the tensor.
        cut = replace(
            cut,
            title=f"Detach {t.it} in the first loss, which trains other weights ({first})",
            effect_note="the first loss then stops there, as its optimizer step suggests it should",
            edit=edits.detached_before(t, "freed"),
        )
        return cut, again
    return again, cut


def _sliced(t: Telling) -> tuple[Remedy, ...]:
    failed = t.story.failed
    summed = Remedy(
        title="Add the parts' losses up and call backward once",
        effect="same",
        effect_note="the sum's gradient is the sum of the gradients",
    )
    rows = failed is not None and (failed.kind == "grad" or t.story.rows)
    if rows and t.same_line:
        return (
            Remedy(
                title="Keep the graph for all rows but the last: these are several true "
                "derivatives of one graph",
                effect="same",
                effect_note="retain_graph=True is right here; it keeps the graph's memory until "
                "the last row is done. torch.func.jacrev does the same in one call",
                edit=edits.with_argument(t, "failed", "retain_graph=True"),
            ),
            summed,
        )
    return (
        summed,
        Remedy(
            title=f"Cut {t.it} off as a leaf, back-propagate part by part into it, then once "
            "through what made it",
            effect="same",
            effect_note="only one part's graph is alive at a time: onegraph.lifetime.split_at, "
            "with blocks or pairwise_blocks",
        ),
    )


def _twice(t: Telling) -> tuple[Remedy, ...]:
    frames = t.frames("failed")
    function = frames[0].function.rpartition(".")[2] if t.same_line and frames else ""
    named = function not in ("", "<module>", "<lambda>")
    where = f"inside `{function}`, before its backward" if named else "before the second backward"
    return (
        Remedy(
            title=f"Compute the loss again {where}",
            effect="same",
            effect_note="the second update uses the weights as they are by then",
        ),
        Remedy(
            title="Call backward once if a single update is meant",
            effect="changes",
            effect_note="the gradient counts once",
        ),
    )


def _running(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="Back-propagate only this step's own loss; gradients add up in .grad",
            effect="same",
            effect_note="the accumulated gradient is that of the sum",
        ),
        Remedy(
            title=f"Keep {t.it} as a number: add loss.item() or loss.detach()",
            effect="same",
            effect_note="the running value is for reading, not for backward",
        ),
    )


def _target(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title=f"Detach {t.it}: a target is a constant",
            effect="changes",
            effect_note="the loss trains the prediction only, not what made the target",
            edit=edits.detached_where_read(t),
        ),
        Remedy(
            title="Make the target under torch.no_grad()",
            effect="changes",
            effect_note="as above, and its graph is never built",
        ),
    )


def _grad_first(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="Pass create_graph=True to autograd.grad when its result is part of the loss",
            effect="changes",
            effect_note="the derivative term then trains too, which it did not before; the graph "
            "stays until the loss is back-propagated",
            edit=edits.with_argument(t, "freed", "create_graph=True"),
        ),
        Remedy(
            title="Pass retain_graph=True to autograd.grad when its result is only used as a "
            "number",
            effect="same",
            effect_note="several true derivatives of one graph: it stays in memory until backward",
            edit=edits.with_argument(t, "freed", "retain_graph=True"),
        ),
    )


def _saved(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="Read the saved tensor before backward",
            effect="same",
            effect_note="it is there until backward has used it",
        ),
        Remedy(
            title="Keep the value itself, detached, instead of the node",
            effect="same",
            effect_note="x.detach() outlives the graph",
        ),
    )


def _checkpoint(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title=f"Pass {t.it} to checkpoint(...) as an argument",
            effect="same",
            effect_note="the checkpoint then cuts it off for the inner backward and hands its "
            "gradient on",
        ),
        Remedy(
            title="Use the non-reentrant checkpoint",
            effect="same",
            effect_note="it calls no backward inside backward",
            edit=Edit("use_reentrant=False"),
        ),
    )


def _compiled(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="Add the losses and call backward once",
            effect="same",
            effect_note="the sum's gradient is the sum of the gradients",
            edit=edits.summed(t, "freed", "failed"),
        ),
        Remedy(
            title="Leave the shared part out of the compiled region",
            effect="same",
            effect_note="eager code frees only the nodes that a backward walks",
        ),
    )


_REMEDIES = {
    "carried-state": _carried,
    "built-outside-loop": _outside,
    "cached-on-module": _cached,
    "several-losses-one-graph": _several,
    "sliced-or-blocked": _sliced,
    "same-loss-twice": _twice,
    "running-sum-loss": _running,
    "undetached-target": _target,
    "grad-then-backward": _grad_first,
    "saved-tensor-access": _saved,
    "reentrant-checkpoint": _checkpoint,
    "compile": _compiled,
}
