"""What a report of a second backward says, cause by cause. The messages are the product."""

from __future__ import annotations

from dataclasses import replace

from onegraph.diagnosis.telling import Telling
from onegraph.trace import Finding, Site, Trace

ORDER = ("failed", "joined", "built", "freed")

RETAIN_COST = "retain_graph=True makes every step longer and slower than the last."


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
        "that one computation; the first turn used it up."
        if t.loops
        else f"{it} was computed once, and both backward calls go through that one computation; "
        "the first one used it up.",
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
        f"not built again {'in the next turn' if t.loops else 'for the second one'}.",
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
        "saved-tensor-access": "retain_graph=True: it keeps every saved tensor to read one.",
        "reentrant-checkpoint": "retain_graph=True on the outer call: the inner calls free the "
        "graph.",
        "compile": "",
    }
    return texts[t.cause]


def label(t: Telling, sites: dict[str, tuple[Site, ...]]) -> dict[str, tuple[Site, ...]]:
    """The sites, each with the one thing to say about it."""
    story = t.story
    failed, freed = t.step(story.failed), t.step(story.freed)
    reached = t.shared.nodes
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
    elif t.cause == "sliced-or-blocked":
        texts["freed"] = f"{freed} found them whole and freed them here"
    elif t.cause == "same-loss-twice":
        texts["failed"] = "the second time"
        texts["freed"] = "the first time freed its graph"
    elif t.cause == "saved-tensor-access":
        texts["failed"] = "reads what the node had saved"
        texts["freed"] = "backward freed it here"
    elif t.cause == "running-sum-loss":
        texts["joined"] = f"{t.it} takes the earlier losses along"
    elif t.cause == "undetached-target":
        texts["joined"] = f"the loss compares with {t.it}, its history attached"
    elif t.cause == "reentrant-checkpoint":
        texts["failed"] = "one call, but every checkpoint calls backward inside it"
        texts["joined"] = f"uses {t.it} inside the checkpointed function"
        texts.pop("freed")
    return {
        role: tuple(
            replace(site, label=texts.get(role) if not k else None) for k, site in enumerate(places)
        )
        for role, places in sites.items()
    }


def untold(trace: Trace) -> Finding:
    """The finding when the graph itself could not be read."""
    failure = trace.failure
    assert failure is not None
    sites: dict[str, tuple[Site, ...]] = {}
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
        unknown=dict.fromkeys(("built", "joined", "freed"), reason),
        headline="this backward needs a graph that an earlier backward already freed",
        why="an earlier backward freed a part of the graph that this one needs.",
        order=ORDER,
    )
