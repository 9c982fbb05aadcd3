"""Saves the traces that `test_messages.py` draws again: `python -m tests.messages.regenerate`.

With ``--texts`` it also writes what they say today into the test, to be read before it is kept.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from onegraph.compose import compose
from onegraph.render import plain
from onegraph.trace import Process, codec
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
    if "--texts" in sys.argv[1:]:
        rewrite()


def rewrite() -> None:
    """Put the reports of the saved traces into the test."""
    test = HERE / "test_messages.py"
    entries = []
    for path in sorted((HERE / "traces").glob("*.json")):
        traces, head = codec.traces_from_json(path.read_text())
        report = compose(
            traces,
            head["outcome"],
            head["exit_status"],
            head["exception"],
            process=Process(1, None),
        )
        entries.append(f'    "{path.stem}": """\\\n{plain.render(report)}""",\n')
    text = "EXPECTED = {\n" + "".join(entries) + "}\n"
    source = test.read_text()
    test.write_text(re.sub(r"(?s)^EXPECTED = \{\n.*?^\}\n", lambda _: text, source, flags=re.M))


if __name__ == "__main__":
    main()
