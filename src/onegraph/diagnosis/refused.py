"""Rules for operations that torch refuses at once, although they are no backward calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import Change, Edit, Failure, Finding, Remedy, Site, Trace, messages

_ORDER = ("failed", "built", "cut")


def rule(trace: Trace) -> list[Finding]:
    """A finding for an in-place write, an optimizer's argument or a gradient that is refused."""
    failure = trace.failure
    if failure is None or failure.kind != "operation" or failure.site is None:
        return []
    told = _RULES.get(messages.symptom_of(failure.message) or "")
    return [told(trace, failure, Syntax(trace.sources))] if told else []


def _statement(trace: Trace, failure: Failure, syntax: Syntax) -> tuple[str, list[str]]:
    """(text, names it writes to, or is given) of the refused statement."""
    assert failure.site is not None
    frames = trace.sites[failure.site].frames
    statement = syntax.statement(frames[0]) if frames else None
    if statement is None:
        return "", []
    if failure.library is None and statement.stores:
        stored = [n for n in statement.stores if not n.endswith("]")] or list(statement.stores)
        if statement.text.partition(" = ")[0] not in statement.stores or "[" in statement.text:
            return statement.text, stored
    return statement.text, list(dict.fromkeys((*statement.stores, *statement.reads)))


def _failed(trace: Trace, failure: Failure, label: str) -> dict[str, tuple[Site, ...]]:
    assert failure.site is not None
    return {"failed": (replace(trace.sites[failure.site], label=label),)}


def _in_place_cause(failure: Failure) -> str:
    library = (failure.library or "").replace("\\", "/")
    return "inplace-activation" if library.startswith("torch/nn/") else "inplace-op"


def _written(
    trace: Trace, failure: Failure, syntax: Syntax, label: str
) -> dict[str, tuple[Site, ...]]:
    sites = _failed(trace, failure, label)
    sites["mutated"] = (replace(sites["failed"][0], label=None),)
    return sites


def _out_of_place(trace: Trace, failure: Failure, syntax: Syntax) -> Edit | None:
    assert failure.site is not None
    site = trace.sites[failure.site]
    frame = site.frames[0] if site.frames else None
    text = syntax.out_of_place(frame) if frame is not None else None
    statement = syntax.statement(frame) if frame is not None else None
    if text is None or statement is None or failure.library is not None:
        return None
    return Edit(text, (Change(site.file, statement.line, statement.end_line, text),))


def _leaf(trace: Trace, failure: Failure, syntax: Syntax) -> Finding:
    _, names = _statement(trace, failure, syntax)
    it = f"`{names[0]}`" if names else "this tensor"
    return Finding(
        level="error",
        symptom=messages.LEAF,
        cause=_in_place_cause(failure),
        certainty="proved",
        summary=f"{it} is a leaf that gradients are collected for, and writing over it in place "
        "would lose what they belong to.",
        names=tuple(names[:4]),
        sites=_written(trace, failure, syntax, f"writes to {it}, a leaf that requires a gradient"),
        headline=f"{it} is a leaf that requires a gradient, and cannot be written in place",
        why="a leaf is where gradients arrive; an in-place operation that is recorded would turn "
        "it into a result, and its gradient would have no place to go.",
        remedies=(
            Remedy(
                title="Write under torch.no_grad() where the write is no part of the computation",
                effect="same",
                effect_note="as an optimizer or an initialisation does it",
            ),
            Remedy(
                title="Compute a new tensor where gradients are to pass through the write",
                effect="same",
                effect_note="the leaf keeps its gradient",
                edit=_out_of_place(trace, failure, syntax),
            ),
        ),
        avoid=".data, which hides the write from every check.",
        order=_ORDER,
    )


def _view(trace: Trace, failure: Failure, syntax: Syntax) -> Finding:
    _, names = _statement(trace, failure, syntax)
    it = f"`{names[0]}`" if names else "this tensor"
    cause = _in_place_cause(failure)
    maker = re.search(r"[Oo]utput \d+ of (\w+?)(?:Backward\d*)? is a view", failure.message)
    made = f"{maker.group(1)} made it together with others" if maker else "it is one of several"
    if maker and "Hook" in maker.group(1):
        made = "a module's backward hook wraps it in a view"
    if cause == "inplace-activation":
        remedy = Remedy(
            title="Use the activation without inplace=True",
            effect="same",
            effect_note="it then makes a new tensor, at the cost of its memory",
        )
    else:
        remedy = Remedy(
            title=f"Make a new tensor instead of writing over {it}",
            effect="same",
            effect_note="views of one tensor that were made together cannot be written one by one",
            edit=_out_of_place(trace, failure, syntax),
        )
    return Finding(
        level="error",
        symptom=messages.VIEW,
        cause=cause,
        certainty="proved",
        summary=f"{it} is a view that cannot be written in place: {made}.",
        names=tuple(names[:4]),
        sites=_written(trace, failure, syntax, f"writes to {it} in place"),
        headline=f"{it} is a view that cannot be written in place",
        why=f"{made}, and autograd keeps no record of a write to one of them.",
        remedies=(remedy,),
        order=_ORDER,
    )


def _nonleaf_optimizer(trace: Trace, failure: Failure, syntax: Syntax) -> Finding:
    sites = _failed(trace, failure, "gives the optimizer a computed tensor")
    unknown = {}
    if failure.made is not None:
        sites["built"] = (replace(trace.sites[failure.made], label="it is computed here"),)
    else:
        unknown["built"] = "the tensor was made where nothing was recorded"
    name = failure.names[0] if failure.names else "x"
    it = f"`{failure.names[0]}`" if failure.names else "a tensor given to the optimizer"
    return Finding(
        level="error",
        symptom=messages.NONLEAF_OPTIMIZER,
        cause="derived-tensor-optimised",
        certainty="proved",
        summary=f"{it} is computed from other tensors; an optimizer can only change leaves.",
        names=failure.names,
        sites=sites,
        unknown=unknown,
        headline=f"{it} is computed, so an optimizer cannot train it",
        why="an optimizer changes tensors in place between steps. A computed tensor follows from "
        "its leaves: those are what there is to train.",
        remedies=(
            Remedy(
                title="Give the optimizer the leaf, and compute the tensor from it in every step",
                effect="same",
                effect_note="the gradient then passes through the computation to the leaf",
            ),
            Remedy(
                title=f"Make the computed value a leaf: {name} = {name}.detach().requires_grad_()",
                effect="changes",
                effect_note="what it was computed from is then no longer trained",
            ),
        ),
        order=_ORDER,
    )


def _nonleaf_grad(trace: Trace, failure: Failure, syntax: Syntax) -> Finding:
    text, _ = _statement(trace, failure, syntax)
    found = re.findall(r"([\w.\[\]\"']+)\.grad\b", text)
    name = found[0] if found else "x"
    it = f"`{found[0]}`" if found else "this tensor"
    sites = _failed(trace, failure, f"the gradient of {it} is None")
    unknown = {}
    if failure.made is not None:
        sites["cut"] = (replace(trace.sites[failure.made], label=f"computes {it}: it is no leaf"),)
    else:
        unknown["cut"] = "the tensor was made where nothing was recorded"
    return Finding(
        level="error",
        symptom=messages.NONLEAF_GRAD,
        cause="nonleaf-grad-read",
        certainty="proved",
        summary=f"{it} is computed from other tensors, and backward fills .grad of leaves only.",
        names=tuple(dict.fromkeys(found))[:4],
        sites=sites,
        unknown=unknown,
        headline=f"{it} has no .grad: it is computed, and only leaves keep theirs",
        why="backward passes the gradient of a computed tensor on and drops it, unless it was "
        "asked to retain it.",
        remedies=(
            Remedy(
                title=f"Make it a leaf before its use: {name} = {name}.detach().requires_grad_()",
                effect="truncates",
                effect_note="gradients then stop there, as an iteration over inputs wants",
            ),
            Remedy(
                title=f"Call retain_grad() on {it} before backward",
                effect="same",
                effect_note="its gradient is then kept beside those of the leaves",
            ),
        ),
        order=_ORDER,
    )


_RULES: dict[str, Callable[[Trace, Failure, Syntax], Finding]] = {
    messages.LEAF: _leaf,
    messages.VIEW: _view,
    messages.NONLEAF_OPTIMIZER: _nonleaf_optimizer,
    messages.NONLEAF_GRAD: _nonleaf_grad,
}
