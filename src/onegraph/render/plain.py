"""A report as plain text, at most 25 lines a finding."""

from __future__ import annotations

from onegraph.render.layout import layout
from onegraph.trace import Report


def render(report: Report, *, width: int = 80) -> str:
    """The whole report without colour."""
    return "\n".join(line.text for line in layout(report, width)) + "\n"
