"""Notes on backward calls that walk the same nodes and are allowed to."""

from __future__ import annotations

from dataclasses import replace

from onegraph.trace import Finding, Site, Trace


def rule(trace: Trace) -> list[Finding]:
    """A note for each group of calls that walked shared nodes without a failure."""
    found = []
    for walked in trace.walked:
        calls = [c for c in trace.calls if c.ordinal in walked.steps and c.site is not None]
        sites: dict[str, tuple[Site, ...]] = {}
        if walked.built is not None:
            sites["built"] = (replace(trace.sites[walked.built], count=walked.nodes),)
        if calls:
            site = calls[-1].site
            assert site is not None
            sites["failed"] = (replace(trace.sites[site], count=len(walked.steps)),)
        count = len(walked.steps)
        found.append(
            Finding(
                level="note",
                symptom="second-backward",
                cause="sliced-or-blocked",
                certainty="proved",
                summary=f"{count} backward calls walk the same {walked.nodes} nodes; torch allows "
                "it because none of those nodes saves a tensor, so there is nothing to free.",
                names=walked.names,
                sites=sites,
                headline=f"{count} backward calls walk the same {walked.nodes} nodes",
                why="none of those nodes saves a tensor for backward, so the first call frees "
                "nothing that a later one needs. One op that saves its input, such as a linear "
                "layer, and the second call fails.",
                order=("failed", "built"),
            )
        )
    return found
