"""`onegraph explain`: a page on each cause, and on the popular wrong answers."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import textwrap
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TextIO

NAME = "explain"
HELP = "print a page on a cause: a failing program, its report, the repair"

MYTHS = "myths"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("cause", nargs="?", help=f"a cause as reports name it, or `{MYTHS}`")


def main(options: argparse.Namespace) -> int:
    """Print the page, or the list of pages."""
    if options.cause is None:
        return _write(contents())
    cause = options.cause.strip("[]")
    if cause in names():
        return _write(page(cause, colour=_colour(sys.stdout)))
    near = difflib.get_close_matches(cause, names(), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    print(
        f"onegraph: no page on {cause!r}; {hint}`onegraph explain` lists the pages",
        file=sys.stderr,
    )
    return 2


def names() -> list[str]:
    """The names of all pages, `myths` last."""
    found = {folder.name for folder in _pages().iterdir() if (folder / "text.md").is_file()}
    return [*sorted(found - {MYTHS}), *sorted(found & {MYTHS})]


def contents() -> str:
    """The list of pages."""
    lines = ["onegraph explain CAUSE prints a page on one of:", ""]
    for name in names():
        title = _read(_pages() / name / "text.md").partition("\n")[0]
        lines += _entry(name, title.partition(": ")[2])
    return "\n".join(lines) + "\n"


def page(name: str, *, colour: bool = False) -> str:
    """The page as text: its programs and report put in, headings set off."""
    folder = _pages() / name
    text = re.sub(
        r"^\{\{(.+?)\}\}$",
        lambda match: _inserted(folder, match[1]),
        _read(folder / "text.md"),
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^(##?) (.*)$",
        lambda match: _heading(match[1], match[2], colour),
        text,
        flags=re.MULTILINE,
    )
    program = folder / "fails.py"
    if isinstance(program, Path) and program.exists():
        text += f"\nTo see it yourself:\n\n    onegraph run {program}\n"
    return text


def _pages() -> Traversable:
    return files("onegraph") / "pages"


def _read(path: Traversable) -> str:
    return path.read_text(encoding="utf-8")


def _entry(name: str, words: str) -> list[str]:
    return textwrap.wrap(f"  {name:26}{words}", 80, subsequent_indent=" " * 28)


def _inserted(folder: Traversable, what: str) -> str:
    """What a placeholder stands for: a program, the report, or the lines a repair changes."""
    if what == "report":
        return _read(folder / "report.txt").rstrip()
    if what == "changes":
        return textwrap.indent(changes(folder), "    ")
    return textwrap.indent(_read(folder / f"{what}.py").rstrip(), "    ")


def changes(folder: Traversable) -> str:
    """The lines that differ between the failing and the repaired program, with their neighbours."""
    before, after = (_read(folder / f"{name}.py").splitlines() for name in ("fails", "repaired"))
    lines = difflib.unified_diff(before, after, n=1, lineterm="")
    body = [" ..." if line.startswith("@@") else line.rstrip() for line in lines]
    return "\n".join(body[3:]).strip("\n")


def _heading(marks: str, words: str, colour: bool) -> str:
    if colour:
        return f"\x1b[{'1;36' if marks == '#' else '1'}m{words}\x1b[0m"
    return f"{words}\n{('=' if marks == '#' else '-') * len(words)}"


def _colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") != "dumb"
    )


def _write(text: str) -> int:
    """Write to stdout, whatever it can show; a reader such as `head` may close it early."""
    stream = sys.stdout
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, errors="replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, which must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return 0
