"""What a report of a second backward says, cause by cause. The messages are the product."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from onegraph.diagnosis.naming import Naming, last_part
from onegraph.diagnosis.story import Story
from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import EngineCall, Finding, Remedy, Site, Trace

ORDER = ("failed", "joined", "built", "freed")

RETAIN_COST = "retain_graph=True makes every step longer and slower than the last."


@dataclass(frozen=True, slots=True)
class Telling:
    """What the texts of one finding draw on."""

    story: Story
    cause: str
    name: str | None
    naming: Naming | None
    sites: dict[str, tuple[Site, ...]]
    parameters: tuple[str, ...]
    syntax: Syntax

    @property
    def stepped(self) -> frozenset[str] | None:
        """The leaves written in place between the two calls; None when nothing was."""
        failed, freed = self.story.failed, self.story.freed
        if failed is None or freed is None:
            return None
        between = [
            s for s in self.story.trace.stepped if freed.ordinal <= s.epoch < failed.ordinal
        ]
        return frozenset(n for s in between for n in s.names) if between else None

    def loss(self, role: str) -> str | None:
        """The tensor a role's call starts from, as written before ``.backward``."""
        match = re.fullmatch(r"([\w.\[\]\"']+)\.backward\(.*\)", self.code(role))
        return match.group(1) if match else None

    @property
    def it(self) -> str:
        """The tensor, by its name if it has one."""
        return f"`{self.name}`" if self.name else "an earlier result"

    def line(self, role: str) -> str | None:
        """``file:line`` of a role's best site."""
        found = self.sites.get(role)
        return f"{found[0].file}:{found[0].line}" if found else None

    def code(self, role: str) -> str:
        """The first line of the expression at a role's best site."""
        found = self.sites.get(role)
        return found[0].code.splitlines()[0] if found and found[0].code else ""

    def statement(self, role: str) -> str:
        """The whole statement around a role's best site, on one line."""
        found = self.sites.get(role)
        if not found or not found[0].frames:
            return ""
        statement = self.syntax.statement(found[0].frames[0])
        return statement.text if statement else ""

    @property
    def same_line(self) -> bool:
        """Whether the freeing and the failing call are two runs of one line."""
        failed, freed = self.story.failed, self.story.freed
        return bool(failed and freed and failed.site == freed.site and failed.site is not None)

    def step(self, call: EngineCall | None) -> str:
        """How to speak of an engine call: its loop turn, or its place among all of them."""
        if call is None:
            return "an earlier call"
        if self.same_line and call.parent is None:
            return f"step {call.turn}"
        return f"{'grad' if call.kind == 'grad' else 'backward'} call {call.step}"


def headline(t: Telling) -> str:
    """The first line: what happened in the user's terms."""
    if t.cause == "saved-tensor-access":
        return "this reads a saved tensor that a backward has already freed"
    if t.story.failed is not None and t.story.failed.kind == "grad":
        return "this gradient needs a graph that an earlier backward already freed"
    return "this backward needs a graph that an earlier backward already freed"


def summary(t: Telling) -> str:
    """One sentence that is understood without knowing autograd's internals."""
    freed, failed = t.step(t.story.freed), t.step(t.story.failed)
    it = t.it
    texts = {
        "carried-state": f"{it} goes from {freed} into {failed} with its history, which the "
        f"backward of {freed} had already used up.",
        "built-outside-loop": f"{it} was computed once, and every turn calls backward through "
        "that one computation; the first turn used it up.",
        "cached-on-module": f"{it} was computed once and kept with its history; the first "
        "backward used that history up and a later one needs it again.",
        "several-losses-one-graph": f"Two losses share the computation of {it}; the backward of "
        "the first used it up before the second needed it.",
        "sliced-or-blocked": f"Each loss takes its own part of {it}, but all parts come from one "
        "computation, which the first backward used up.",
        "same-loss-twice": f"{it} is back-propagated twice, and the first time used its graph up.",
        "running-sum-loss": f"{it} still contains losses of earlier steps that were already "
        "back-propagated.",
        "undetached-target": f"{it} serves as a target but still has its own history, which an "
        "earlier backward used up.",
        "grad-then-backward": f"autograd.grad used up the computation of {it} that the later "
        "backward needs as well.",
        "saved-tensor-access": f"A saved tensor of {it} is read after backward freed it; backward "
        "ran only once.",
        "reentrant-checkpoint": f"{it} is used inside reentrant checkpoints without being passed "
        "to them, so each checkpoint's own backward runs through its history.",
        "compile": f"Both losses pass the same compiled region that made {it}; its first backward "
        "frees the whole region, more than eager code would.",
    }
    return texts[t.cause]


def why(t: Telling) -> str:
    """At most two sentences on how it comes about."""
    it = t.it
    texts = {
        "carried-state": f"{it} is used across steps with its history attached, so each loss "
        "reaches all earlier steps. A value may go on to the next step; its history may not.",
        "built-outside-loop": f"backward frees the graph it walks, and the part that made {it} is "
        "not built again in the next turn.",
        "cached-on-module": f"backward frees the graph it walks, and {it} is not computed again: "
        "the stored tensor still points to the freed part.",
        "several-losses-one-graph": f"each backward frees all it reaches, so the part that made "
        f"{it} can be walked only once.",
        "sliced-or-blocked": f"a slice is no copy of the graph: every part leads to the "
        f"computation of {it}, and the first backward freed it for all.",
        "same-loss-twice": "one forward pass builds one graph, and one backward frees it. A "
        "second update needs a second forward pass.",
        "running-sum-loss": "gradients add up in .grad by themselves, so the sum's earlier terms "
        "are walked again, through graphs that are gone.",
        "undetached-target": f"the loss compares with {it}, so backward runs through the target "
        "as well; a target is a constant and should have no history.",
        "grad-then-backward": "autograd.grad frees the graph it walks, just as backward does, "
        "unless it is told to keep it or to build a graph of the derivative.",
        "saved-tensor-access": "backward frees what a node had saved as soon as it has used it.",
        "reentrant-checkpoint": "a reentrant checkpoint re-runs its function and calls backward "
        f"inside backward; that inner call runs on into the graph behind {it} and frees it, and "
        "the next checkpoint meets it again.",
        "compile": "a compiled region is one node of the graph with all its saved tensors, so one "
        "backward through any of its outputs frees the others' as well.",
    }
    return texts[t.cause]


def avoid(t: Telling) -> str:
    """What is not a repair, and why; empty when nothing needs to be said."""
    texts = {
        "carried-state": RETAIN_COST,
        "built-outside-loop": "retain_graph=True; it would train on values from before the first "
        "optimizer step.",
        "cached-on-module": "retain_graph=True; the stored value would stay that of the first "
        "step while the weights move on.",
        "several-losses-one-graph": "clone(), which copies the value and keeps the history.",
        "sliced-or-blocked": "clone() of each part, which keeps the history.",
        "same-loss-twice": "retain_graph=True; the second update would use the first one's "
        "forward values.",
        "running-sum-loss": "retain_graph=True; it would count the earlier terms again at every "
        "step.",
        "undetached-target": "retain_graph=True; the target would still be trained.",
        "grad-then-backward": "",
        "saved-tensor-access": "retain_graph=True, which would keep all saved tensors alive.",
        "reentrant-checkpoint": "retain_graph=True on the outer call: the inner calls free the "
        "graph.",
        "compile": "",
    }
    return texts[t.cause]


def _edited(text: str, name: str, replacement: str) -> str | None:
    """A statement with the last read of ``name`` replaced, None when that is not clear-cut."""
    head, assign, tail = text.partition(" = ")
    body = tail if assign else text
    at = -1
    position = body.find(name)
    while position >= 0:
        before = body[position - 1] if position else " "
        after = body[position + len(name)] if position + len(name) < len(body) else " "
        if not (before.isalnum() or before in "_.") and not (after.isalnum() or after == "_"):
            at = position
        position = body.find(name, position + 1)
    if at < 0:
        return None
    edited = body[:at] + replacement + body[at + len(name) :]
    return f"{head}{assign}{edited}" if assign else edited


def _spelled(t: Telling, role: str) -> str | None:
    """The tensor's name as the statement at a role spells it."""
    statement = t.statement(role)
    if not statement or t.naming is None:
        return None
    for name in (*t.naming.names, *t.naming.read):
        same = t.name is None or last_part(name) == last_part(t.name)
        if same and _edited(statement, name, name) is not None:
            return name
    return None


def _detach_edit(t: Telling) -> str | None:
    """The joined statement with the old tensor detached."""
    name = _spelled(t, "joined")
    if name is None:
        return None
    statement = t.statement("joined")
    if not _single(t) or statement.startswith(("for ", "while ", "if ", "with ", "return [")):
        return None
    return _edited(statement, name, f"{name}.detach()")


def _single(t: Telling) -> bool:
    """Whether the name holds one tensor, not a nest of them."""
    name = t.name or ""
    if t.naming is not None and t.naming.binding is not None:
        # `hidden[0]` is a tensor, but the line may pass `hidden` on as a whole.
        return not t.naming.binding.name.endswith("]") or name.endswith("]")
    return True


def remedies(t: Telling) -> tuple[Remedy, ...]:
    """What to write instead, best first."""
    return _REMEDIES[t.cause](t)


def _carried(t: Telling) -> tuple[Remedy, ...]:
    it = t.it
    after = f" ({t.line('failed')})" if t.line("failed") else ""
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
    if stepped.isdisjoint(t.parameters):
        # The step after the first loss trains other weights than those behind the tensor.
        name = t.name or "the tensor"
        cut = replace(
            cut,
            title=f"Detach {t.it} in the first loss, which trains other weights ({first})",
            effect_note="the first loss then stops there, as its optimizer step suggests it should",
            edit=f"{name}.detach()" if t.name else None,
        )
        return cut, again
    return again, cut


def _sliced(t: Telling) -> tuple[Remedy, ...]:
    failed = t.story.failed
    summed = Remedy(
        title="Add the parts' losses up and call backward once",
        effect="same",
        effect_note="the sum's gradient is the sum of the gradients",
        edit="sum(losses).backward()",
    )
    if failed is not None and failed.kind == "grad" and t.same_line:
        return (
            Remedy(
                title="Keep the graph for all rows but the last: these are several true "
                "derivatives of one graph",
                effect="same",
                effect_note="retain_graph=True is right here; it keeps the graph's memory until "
                "the last row is done. torch.func.jacrev does the same in one call",
                edit="retain_graph=True",
            ),
            summed,
        )
    return (
        summed,
        Remedy(
            title=f"Cut {t.it} off as a leaf, back-propagate part by part into it, then once "
            "through what made it",
            effect="same",
            effect_note="only one part's graph is alive at a time; onegraph.lifetime.split_at "
            "does it",
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
            edit=f"{t.name} += loss.item()" if t.name else None,
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
            edit="create_graph=True",
        ),
        Remedy(
            title="Pass retain_graph=True to autograd.grad when its result is only used as a "
            "number",
            effect="same",
            effect_note="several true derivatives of one graph: it stays in memory until backward",
            edit="retain_graph=True",
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
            title="Use use_reentrant=False",
            effect="same",
            effect_note="it calls no backward inside backward",
            edit="use_reentrant=False",
        ),
    )


def _compiled(t: Telling) -> tuple[Remedy, ...]:
    return (
        Remedy(
            title="Add the losses and call backward once",
            effect="same",
            effect_note="the sum's gradient is the sum of the gradients",
            edit="(loss_a + loss_b).backward()",
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


def label(t: Telling, sites: dict[str, tuple[Site, ...]]) -> dict[str, tuple[Site, ...]]:
    """The sites, each with the one thing to say about it."""
    story = t.story
    failed, freed = t.step(story.failed), t.step(story.freed)
    reached = sum(1 for flag in story.shared if flag)
    counted = f"{reached} node{'s' if reached != 1 else ''}"
    texts = {
        "failed": f"{failed}: reaches {counted} that {freed} freed",
        "freed": f"{freed} freed those nodes here",
        "built": f"{t.it} was made here" if t.name else "that part was made here",
        "joined": f"takes {t.it} in, with its history",
    }
    if t.cause == "carried-state":
        texts["failed"] = f"{failed}: reaches {counted} made in {freed}"
        texts["joined"] = f"the bridge: {t.it} still carries the graph of {freed}"
        texts["freed"] = f"{freed} freed those nodes here"
    elif t.cause == "same-loss-twice":
        texts["failed"] = "the second time"
        texts["freed"] = "the first time freed its graph"
    elif t.cause == "saved-tensor-access":
        texts["failed"] = "reads what the node had saved"
        texts["freed"] = "backward freed it here"
    elif t.cause == "running-sum-loss":
        texts["joined"] = f"{t.it} takes the earlier losses along"
    elif t.cause == "undetached-target":
        texts["joined"] = f"{t.it} is compared with, its history attached"
    elif t.cause == "reentrant-checkpoint":
        texts["failed"] = "one call, but every checkpoint calls backward inside it"
        texts["joined"] = f"uses {t.it} inside the checkpointed function"
        texts.pop("freed")
    return {
        role: tuple(
            replace(site, label=texts.get(role) if not k else None)
            for k, site in enumerate(places)
        )
        for role, places in sites.items()
    }


def untold(trace: Trace) -> Finding:
    """The finding when the graph itself could not be read."""
    failure = trace.failure
    assert failure is not None
    sites = {}
    if failure.site is not None:
        sites["failed"] = (trace.sites[failure.site],)
    reason = "the failing graph holds no node whose saved tensors are known to be freed"
    return Finding(
        level="error",
        symptom="second-backward",
        cause="several-losses-one-graph",
        certainty="likely",
        summary="This backward needs a graph that an earlier backward already freed; which part "
        "is unknown.",
        sites=sites,
        unknown={role: reason for role in ("built", "joined", "freed")},
        headline="this backward needs a graph that an earlier backward already freed",
        why="an earlier backward freed a part of the graph that this one needs.",
        order=ORDER,
    )
