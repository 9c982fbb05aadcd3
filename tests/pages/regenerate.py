"""Writes every page's report.txt anew: `python -m tests.pages.regenerate [CAUSE ...]`."""

from __future__ import annotations

import sys

from tests.pages.running import PAGES, run


def main(causes: list[str]) -> int:
    """Run each page's failing program and store what onegraph prints."""
    folders = {path.parent.name: path for path in sorted(PAGES.glob("*/fails.py"))}
    chosen = {cause: folders[cause] for cause in causes or folders}
    results = run({c: ("fails.py", path.read_text("utf-8")) for c, path in chosen.items()})
    wrong = 0
    for cause, result in results.items():
        path = chosen[cause].with_name("report.txt")
        before = path.read_text("utf-8") if path.exists() else ""
        path.write_text(result.printed, "utf-8")
        found = ", ".join(result.causes) or f"nothing (status {result.status})"
        wrong += found != cause
        print(f"{cause:26}{found:26}{'changed' if result.printed != before else 'same'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
