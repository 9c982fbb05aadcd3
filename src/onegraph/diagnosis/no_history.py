"""Rules for engine calls that find no history: a loss without any, an input that is not in it."""

from __future__ import annotations

import re
from dataclasses import replace

from onegraph.diagnosis.naming import owners
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import CutOff, Failure, Finding, Frame, Remedy, Site, Trace, messages

_ORDER = ("cut", "failed")


def rule(trace: Trace) -> list[Finding]:
    """A finding for `does not require grad` and for `not used in the graph`."""
    failure = trace.failure
    symptom = messages.symptom_of(failure.message) if failure is not None else None
    if failure is None or failure.kind != "engine":
        return []
    if symptom == messages.NO_GRAD:
        return [_no_grad(trace, failure)]
    return [_unused(trace, failure)] if symptom == messages.UNUSED else []


def line_of(trace: Trace, cut: CutOff) -> Site | None:
    """The line to point at: what switched gradients off, or what cut."""
    number = cut.off if cut.off is not None else cut.site
    return trace.sites[number] if number is not None else None


def named_by(trace: Trace, syntax: Syntax, cut: CutOff) -> list[str]:
    """What the statement that cut calls its result and what went into it."""
    site = trace.sites[cut.site] if cut.site is not None else None
    statement = syntax.statement(site.frames[0]) if site is not None and site.frames else None
    return [*statement.stores[:1], *statement.reads[:2]] if statement is not None else []


WORDS = {
    "detach-cut": "detach() ends the history here",
    "data-or-numpy-cut": "the value is taken out here, without its history",
    "no-grad-scope": "gradients are switched off here",
    "non-differentiable-op": "history ends here: {func} has no derivative",
    "comparison-cut": "history ends here: a comparison has no derivative",
    "zero-gradient-op": "{func} has a derivative that is zero everywhere",
}

REMEDIES = {
    "detach-cut": ("Remove the detach() where the gradient is to pass", "same"),
    "data-or-numpy-cut": ("Compute with the tensor itself: torch.stack keeps history", "same"),
    "no-grad-scope": ("Keep `with torch.no_grad():` to what needs no gradient", "same"),
    "non-differentiable-op": ("Compute the loss from the scores before {func}", "changes"),
    "comparison-cut": ("Use a soft comparison, such as sigmoid((a - b) / temperature)", "changes"),
    "zero-gradient-op": ("Keep {func} out of the loss, or estimate its gradient", "changes"),
}  # fmt: skip
NOTES = {"same": "the gradient then reaches what lies behind", "changes": "the loss is another one"}


def words_of(cut: CutOff) -> str:
    """What a cut's line did to the history."""
    if cut.cause == "no-grad-scope" and cut.off == cut.site:
        return "gradients were off here"  # what switched them off was not seen
    return WORDS[cut.cause].format(func=cut.func)


def remedy_for(cause: str, func: str) -> Remedy:
    """What to write instead of a cut."""
    title, effect = REMEDIES[cause]
    return Remedy(
        title=title.format(func=func or "it"),
        effect="changes" if effect == "changes" else "same",
        effect_note=NOTES[effect],
    )


_SCOPED = Remedy(
    title="Use `with torch.no_grad():` around what needs no gradient: it ends by itself",
    effect="same",
    effect_note="set_grad_enabled(False) as a call stays in force",
)
_SCORES = Remedy(
    title="Compute the loss from the scores, and keep the comparison for the metric",
    effect="changes",
    effect_note="cross entropy or the like: it falls where the accuracy rises, and has a gradient",
)


def _no_grad(trace: Trace, failure: Failure) -> Finding:
    syntax = Syntax(trace.sources)
    found = trace.cuts[failure.cut] if failure.cut is not None else None
    certain = found is not None
    if found is None:
        found = _latest(trace, failure)
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    if failure.site is not None:
        sites["failed"] = (
            replace(trace.sites[failure.site], label="has nothing to differentiate"),
        )
    names = list(failure.names)
    cause = "no-grad-scope"
    why = "nothing that it was computed from requires a gradient."
    remedies = [
        Remedy(
            title="Compute it from tensors that require a gradient, with gradients switched on",
            effect="same",
            effect_note="a model's parameters do, unless they were frozen",
        )
    ]
    site = line_of(trace, found) if found is not None else None
    if found is not None and site is not None:
        cause = found.cause
        sites["cut"] = (replace(site, label=words_of(found)),)
        remedies = [remedy_for(cause, found.func)]
        made = trace.sites[found.site] if found.site is not None else None
        if cause == "no-grad-scope":
            where = f"{made.file}:{made.line}" if made is not None else "a line"
            why = f"{where} computed it while gradients were off."
            if made is not None and made.place != site.place:
                label = "computed here, while gradients were off"
                sites["cut"] = (*sites["cut"], replace(made, label=label))
            if "set_grad_enabled" in site.code:
                remedies = [_SCOPED]
        else:
            behind = [*owners(found.names), *found.names[:2]] if found.names else []
            names += [n for n in (*named_by(trace, syntax, found), *behind) if n not in names]
        if cause == "comparison-cut":
            remedies = [_SCORES, *remedies]
        if found.names and cause != "no-grad-scope":
            listed = ", ".join(found.names[:3])
            more = f" and {len(found.names) - 3} more" if len(found.names) > 3 else ""
            why = f"the gradients of {listed}{more} would have to pass {site.file}:{site.line}."
    else:
        unknown["cut"] = "no line was seen that cuts history off"
    it = f"`{failure.names[0]}`" if failure.names else "this tensor"
    return Finding(
        level="error",
        symptom=messages.NO_GRAD,
        cause=cause,
        certainty="proved" if certain else "likely",
        summary=f"{it} cannot be differentiated: nothing that it was computed from has a history.",
        names=tuple(names[:7]),
        sites=sites,
        unknown=unknown,
        headline=f"{it} cannot be differentiated: nothing it was computed from requires a gradient",
        why=why,
        remedies=tuple(remedies),
        avoid="loss.requires_grad_(), which only hides it.",
        order=_ORDER,
    )


def _latest(trace: Trace, failure: Failure) -> CutOff | None:
    """The last line that cut parameters off since the last engine call."""
    since = (failure.step or 1) - 1
    fitting = [cut for cut in trace.cuts if cut.epoch >= since and cut.names]
    return fitting[-1] if fitting else None


def _unused(trace: Trace, failure: Failure) -> Finding:
    syntax = Syntax(trace.sources)
    names = list(failure.names)
    sites: dict[str, tuple[Site, ...]] = {}
    unknown: dict[str, str] = {}
    cause = "unused-module"
    why = "the loss was not computed from it, so there is no gradient to give."
    frames: tuple[Frame, ...] = ()
    if failure.site is not None:
        site = trace.sites[failure.site]
        frames = site.frames
        sites["failed"] = (replace(site, label="asks for the gradient of what was not used"),)
    rebound = next(((f, r) for f in frames if (r := syntax.rebound(f)) is not None), None)
    cut = next((c for c in trace.cuts if set(c.names) & set(names)), None)
    if rebound is not None:
        frame, (line, spoken) = rebound
        cause = "rebinding-does-nothing"
        sites["cut"] = (
            Site(
                file=frame.file,
                line=line,
                column=None,
                end_line=line,
                end_column=None,
                function=frame.function,
                code=syntax.line(frame.file, line),
                frames=(replace(frame, line=line, column=None, end_line=None, end_column=None),),
                label="gives another name to the tensor; the module keeps its own",
            ),
        )
        spoken = tuple(n for n in spoken if re.fullmatch(r"[\w.\[\]\"']+", n))
        names = [*spoken, *(n for n in names if n not in spoken)]
        why = "an assignment to a variable changes what the name means, not what the module holds."
    elif cut is not None and (site_of_cut := line_of(trace, cut)) is not None:
        cause = cut.cause
        sites["cut"] = (replace(site_of_cut, label=WORDS[cause].format(func=cut.func)),)
        why = f"its history ends at {site_of_cut.file}:{site_of_cut.line}, before the loss."
    else:
        unknown["cut"] = "no line was seen that uses it"
    it = f"`{failure.names[0]}`" if failure.names else "a tensor"
    remedies = {
        "unused-module": Remedy(
            title=f"Use {it} in what is differentiated, or do not ask for its gradient",
            effect="same",
            effect_note="a tensor that was not used has no gradient",
        ),
        "rebinding-does-nothing": Remedy(
            title="Run the module with those tensors: torch.func.functional_call(model, params, x)",
            effect="same",
            effect_note="the loss is then computed from them",
        ),
    }
    allowed = Remedy(
        title="Pass allow_unused=True where it is meant to be unused",
        effect="same",
        effect_note="its gradient is then None",
    )
    first = remedies[cause] if cause in remedies else remedy_for(cause, cut.func if cut else "")
    return Finding(
        level="error",
        symptom=messages.UNUSED,
        cause=cause,
        certainty="proved" if rebound is None else "likely",
        summary=f"The gradient with respect to {it} is asked for, but the result does not depend "
        "on it.",
        names=tuple(names[:5]),
        sites=sites,
        unknown=unknown,
        headline=f"{it} is not part of what is differentiated",
        why=why,
        remedies=(first,) if rebound is not None else (first, allowed),
        order=_ORDER,
    )
