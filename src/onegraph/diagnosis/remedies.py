"""What to write instead, cause by cause, and what that does to the gradient."""

from __future__ import annotations

import re
from dataclasses import replace

from onegraph.diagnosis.naming import last_part
from onegraph.diagnosis.telling import Telling
from onegraph.trace import Remedy


def remedies(t: Telling) -> tuple[Remedy, ...]:
    """What to write instead, best first."""
    return _REMEDIES[t.cause](t)


def _edited(text: str, name: str, replacement: str) -> str | None:
    """A statement with its one read of ``name`` replaced, None when that is not clear-cut."""
    head, assign, tail = text.partition(" = ")
    body = tail if assign else text
    found: list[int] = []
    position = body.find(name)
    while position >= 0:
        before = body[position - 1] if position else " "
        after = body[position + len(name)] if position + len(name) < len(body) else " "
        if not (before.isalnum() or before in "_.") and not (after.isalnum() or after == "_"):
            found.append(position)
        position = body.find(name, position + 1)
    if len(found) != 1:
        return None
    at = found[0]
    edited = body[:at] + replacement + body[at + len(name) :]
    return f"{head}{assign}{edited}" if assign else edited


def _spelled(t: Telling, role: str) -> str | None:
    """The tensor's name as the statement at a role spells it."""
    statement = t.statement(role)
    if not statement or t.naming is None:
        return None
    for name in (*t.naming.names, *t.naming.read):
        if t.name is not None and t.name.startswith(f"{name}["):
            continue  # the container, which has no detach()
        same = t.name is None or last_part(name) == last_part(t.name)
        if same and _edited(statement, name, name) is not None:
            return name
    return None


def _detach_edit(t: Telling) -> str | None:
    """The joined statement with the old tensor detached.

    Only where the name still holds that very tensor: an edit of another name would be wrong.
    """
    name = _spelled(t, "joined")
    if name is None or t.naming is None or not t.naming.exact:
        return None
    statement = t.statement("joined")
    if not _single(t) or statement.startswith(("for ", "while ", "if ", "with ", "return [")):
        return None
    return _edited(statement, name, f"{name}.detach()")


def _with_argument(call: str, argument: str) -> str | None:
    """A call with one more argument, None when it is not one whole call on one line."""
    if not call.endswith(")") or argument.partition("=")[0] in call:
        return None
    head = call[:-1]
    return f"{head}{argument})" if head.endswith("(") else f"{head}, {argument})"


def _single(t: Telling) -> bool:
    """Whether the name holds one tensor, not a nest of them."""
    name = t.name or ""
    if t.naming is not None and t.naming.binding is not None:
        # `hidden[0]` is a tensor, but the line may pass `hidden` on as a whole.
        return not t.naming.binding.name.endswith("]") or name.endswith("]")
    return True


def _carried(t: Telling) -> tuple[Remedy, ...]:
    it = t.it
    place = _where_named(t)
    after = f" ({place})" if place else ""
    first = Remedy(
        title=f"Detach {it} when the step ends, after its backward{after}",
        effect="truncates",
        effect_note="gradients then stop at the step's start (truncated backpropagation); a "
        "parameter that only the first step used gets no gradient from later ones",
        edit=_detached_between_steps(t),
    )
    anew = Remedy(
        title=f"Start every step from a fresh {it} when the steps are independent",
        effect="same",
        effect_note="no step depends on another, so no gradient is lost",
    )
    if _in_place_reset(t):
        anew = replace(
            anew,
            title=f"Bind {it} to a new tensor instead of writing over its values",
            edit=f"{t.name} = torch.zeros_like({t.name})" if t.name and _single(t) else None,
        )
        return anew, first
    return first, anew


def _where_named(t: Telling) -> str | None:
    """The line of the failing call's chain in the function where the tensor's name lives."""
    failed = t.sites.get("failed")
    binding = t.naming.binding if t.naming else None
    if not failed:
        return None
    if not t.same_line:
        return t.line("freed")  # the step that ends there is another line's
    frames = failed[0].frames
    depth = binding.depth if binding is not None and binding.depth is not None else 0
    frame = frames[depth] if depth < len(frames) else frames[0]
    return f"{frame.file}:{frame.line}"


def _detached_between_steps(t: Telling) -> str | None:
    """An assignment to put after the backward, in the names that are visible there."""
    binding = t.naming.binding if t.naming else None
    if binding is None or (binding.depth is None and binding.holder == "closure"):
        return None
    name = binding.name
    if re.fullmatch(r"[^\W\d][\w.]*", name):
        return f"{name} = {name}.detach()"
    match = re.fullmatch(r"([^\W\d][\w.]*)\[\d+\]", name)
    if match and binding.holder in ("tuple", "list"):
        whole = match.group(1)
        each = f"h.detach() for h in {whole}"
        return f"{whole} = tuple({each})" if binding.holder == "tuple" else f"{whole} = [{each}]"
    return None


def _in_place_reset(t: Telling) -> bool:
    """Whether the old tensor enters by having its values written over."""
    for bridge in (*t.story.in_time, *t.story.in_share):
        kind = t.story.graph.name(bridge.new)
        if kind.startswith(("Zero", "Fill", "CopySlices", "CopyBackward")):
            return True
    return False


def _outside(t: Telling) -> tuple[Remedy, ...]:
    at = f" ({t.line('built')})" if t.line("built") else ""
    return (
        Remedy(
            title=f"Compute {t.it} inside the loop, once for each backward{at}",
            effect="same",
            effect_note="every turn builds and frees its own graph, with the current weights",
        ),
        Remedy(
            title=f"Detach {t.it} if nothing behind it is to be trained",
            effect="changes",
            effect_note="what made it gets no gradient any more",
            edit=_detach_edit(t),
        ),
        Remedy(
            title="Add the losses up and call backward once, after the loop",
            effect="same",
            effect_note="the sum's gradient is the sum of the gradients; one optimizer step "
            "instead of several",
        ),
    )


def _cached(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title=f"Compute {t.it} where it is used, in forward, instead of keeping it",
            effect="same",
            effect_note="every forward pass builds its own graph, with the current weights",
        ),
        Remedy(
            title=f"Store {t.it} detached if nothing behind it is to be trained",
            effect="changes",
            effect_note="what made it gets no gradient any more",
            edit=_detach_edit(t),
        ),
    )


def _several(t: Telling) -> tuple[Remedy, ...]:
    one, two = t.loss("freed"), t.loss("failed")
    summed = Remedy(
        title="Add the losses and call backward once",
        effect="same",
        effect_note="the sum's gradient is the sum of the gradients; any optimizer step then "
        "comes after it",
        edit=f"({one} + {two}).backward()" if one and two and one != two else None,
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
    if failed is not None and failed.kind == "grad" and t.same_line:
        return (
            Remedy(
                title="Keep the graph for all rows but the last: these are several true "
                "derivatives of one graph",
                effect="same",
                effect_note="retain_graph=True is right here; it keeps the graph's memory until "
                "the last row is done. torch.func.jacrev does the same in one call",
                edit=_with_argument(t.code("failed"), "retain_graph=True"),
            ),
            summed,
        )
    return (
        summed,
        Remedy(
            title=f"Cut {t.it} off as a leaf, back-propagate part by part into it, then once "
            "through what made it",
            effect="same",
            effect_note="only one part's graph is alive at a time",
        ),
    )


def _twice(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="Compute the loss again before the second backward",
            effect="same",
            effect_note="the second update uses the weights as they are by then",
        ),
        Remedy(
            title="Remove one of the two calls if a single update is meant",
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
            edit=_detach_edit(t),
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
            edit=_with_argument(t.code("freed"), "create_graph=True"),
        ),
        Remedy(
            title="Pass retain_graph=True to autograd.grad when its result is only used as a "
            "number",
            effect="same",
            effect_note="several true derivatives of one graph: it stays in memory until backward",
            edit=_with_argument(t.code("freed"), "retain_graph=True"),
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
            edit="use_reentrant=False",
        ),
    )


def _compiled(t: Telling) -> tuple[Remedy, ...]:
    one, two = t.loss("freed"), t.loss("failed")
    return (
        Remedy(
            title="Add the losses and call backward once",
            effect="same",
            effect_note="the sum's gradient is the sum of the gradients",
            edit=f"({one} + {two}).backward()" if one and two and one != two else None,
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
