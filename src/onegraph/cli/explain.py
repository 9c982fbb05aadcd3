"""`onegraph explain`: a page on each cause, and on the popular wrong answers."""

from __future__ import annotations

import argparse
import sys

NAME = "explain"
HELP = "print a page on a cause: a failing program, its report, the repair"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("cause", nargs="?", help="a cause as reports name it, or `myths`")


def main(options: argparse.Namespace) -> int:
    """Print the page, or the list of pages."""
    from importlib.resources import files

    pages = files("onegraph") / "pages"
    names = sorted(p.name.removesuffix(".md") for p in pages.iterdir() if p.name.endswith(".md"))
    if options.cause is None:
        print("onegraph explain CAUSE, with one of:\n")
        for name in names:
            title = (pages / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
            print(f"  {name:26}{title.lstrip('# ')}")
        return 0
    if options.cause not in names:
        print(
            f"onegraph: no page on {options.cause!r}; the pages are: {', '.join(names)}",
            file=sys.stderr,
        )
        return 2
    sys.stdout.write((pages / f"{options.cause}.md").read_text(encoding="utf-8"))
    return 0
