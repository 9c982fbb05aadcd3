"""A report on a terminal, in colour where that is wanted."""

from __future__ import annotations

import io
import os
from typing import TextIO

from rich.console import Console
from rich.text import Text

from onegraph.render.layout import layout
from onegraph.trace import Report

STYLES = {
    "": "",
    "error": "bold red",
    "warning": "bold yellow",
    "note": "bold cyan",
    "bold": "bold",
    "cause": "cyan",
    "place": "blue",
    "code": "",
    "caret": "bold red",
    "label": "red",
    "lead": "bold green",
    "edit": "green",
    "dim": "dim",
}
WIDEST = 100


def render(report: Report, stream: TextIO, *, source: bool = True) -> str:
    """The report as it should be written to ``stream``.

    Colours only on a terminal; NO_COLOR, FORCE_COLOR and COLUMNS are honoured.
    """
    probe = Console(file=stream)
    width = min(probe.width, WIDEST)
    if not stream.isatty() and "COLUMNS" not in os.environ:
        width = 80
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=10_000,
        force_terminal=probe.is_terminal,
        no_color=probe.no_color,
        highlight=False,
        soft_wrap=True,
        color_system=probe.color_system if probe.is_terminal else None,  # type: ignore[arg-type]
        legacy_windows=False,
    )
    for line in layout(report, width, source=source):
        text = Text()
        for part, style in line.parts:
            text.append(part, STYLES[style])
        text.rstrip()
        console.print(text)
    return buffer.getvalue()
