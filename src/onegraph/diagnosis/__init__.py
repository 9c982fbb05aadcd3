"""Pure functions from a `Trace` to findings; one module a rule. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable

from onegraph.diagnosis import (
    harmless,
    inplace_modified,
    no_history,
    refused,
    second_backward,
    silent,
    special,
)
from onegraph.trace import Finding, Trace

Rule = Callable[[Trace], list[Finding]]

RULES: tuple[Rule, ...] = (
    second_backward.rule,
    inplace_modified.rule,
    refused.rule,
    no_history.rule,
    special.rule,
    silent.rule,
)
NOTES: tuple[Rule, ...] = (harmless.rule,)


def findings_of(trace: Trace, *, notes: bool = False) -> list[Finding]:
    """Apply every rule to a trace, in the order of `RULES`."""
    found: list[Finding] = []
    for rule in (*RULES, *(NOTES if notes else ())):
        found.extend(rule(trace))
    return found
