"""Writes anew what the pages and documents show of reports: `python -m tests.pages.regenerate`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import forked
from tests.pages.running import DOCUMENTS, PAGES, SHOWN, causes, printed, run, shown


def main() -> int:
    """Store what onegraph prints today; fail when a page's program has another cause."""
    forked.preload()
    wrong = 0
    for path in sorted(PAGES.glob("*/fails.py")):
        found = run("fails.py", path.read_text("utf-8"))
        told = ", ".join(causes(found)) or f"nothing (status {found.status})"
        if told != path.parent.name:
            wrong += 1
            print(f"{path.parent.name}: onegraph says {told}", file=sys.stderr)
        write(path.with_name("report.txt"), printed(found))
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        write(
            path,
            SHOWN.sub(lambda m: f"<!-- onegraph run {m[1]} -->\n```text\n{shown(m[1])}```\n", text),
        )
    return 1 if wrong else 0


def write(path: Path, text: str) -> None:
    """Write a file when its text is new, and say so."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        print(f"changed: {path}")


if __name__ == "__main__":
    sys.exit(main())
