"""Runs programs of the pages as `onegraph run` would, each alone in a folder of its own."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests import forked

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "src" / "onegraph" / "pages"


def run(name: str, source: str) -> forked.Run:
    """Run a program, given as its file's name and text."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / name).write_text(source, encoding="utf-8")
        return forked.run(folder, [name])


def causes(found: forked.Run) -> list[str]:
    """The causes of a run's findings."""
    return [finding["cause"] for finding in found.findings]


def printed(found: forked.Run) -> str:
    """The report as it was printed, without the traceback above it."""
    report = re.search(r"^(error|warning|note)\b.*", found.err, re.MULTILINE | re.DOTALL)
    return report[0] if report else ""


# A report in a document: the command, as a comment, before a block of text.
SHOWN = re.compile(r"<!-- onegraph run (.+?) -->\n```text\n(.*?)```\n", re.DOTALL)
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def shown(arguments: str) -> str:
    """What `onegraph run arguments` prints in the project's folder, without the program's own."""
    words = arguments.split()
    program = next(k for k, word in enumerate(words) if not word.startswith("-"))
    return printed(forked.run(ROOT, words[program:], words[:program]))
