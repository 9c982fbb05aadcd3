"""Saves the traces that `test_messages.py` draws again: `python -m tests.messages.regenerate`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests import forked

HERE = Path(__file__).parent
PAGES = HERE.parent.parent / "src" / "onegraph" / "pages"


def main() -> None:
    """Record the failing program of every page, and one program with Chinese names."""
    forked.preload()
    programs = {page.parent.name: page for page in sorted(PAGES.glob("*/fails.py"))}
    programs["chinese"] = HERE / "programs" / "chinese.py"
    for name, program in programs.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(program, Path(folder) / "train.py")
            out = HERE / "traces" / f"{name}.json"
            forked.command(Path(folder), ["run", "--trace", str(out), "train.py"])


if __name__ == "__main__":
    main()
