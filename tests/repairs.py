"""Applies the edits that reports print to the programs they are about, and runs those again.

python tests/repairs.py [NAME ...]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.forked import preload, run

CASES = Path(__file__).parent / "cases"


def apply(folder: Path, changes: list[dict[str, Any]]) -> None:
    """Write the changes of an edit into the files of a folder, the last lines first."""
    for change in sorted(changes, key=lambda c: (c["file"], c["line"]), reverse=True):
        path = folder / change["file"]
        lines = path.read_text().splitlines()
        first, last = change["line"] - 1, change["end_line"]
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        new = [indent + change["text"]] if change["text"] else [indent + "pass"]
        lines[last if change["after"] else first : last] = new
        path.write_text("\n".join(lines) + "\n")


def try_out(folder: Path, program: str = "repro.py") -> list[tuple[str, str]]:
    """(edit, what is wrong with it) of each edit that the program's first finding offers."""
    results = []
    findings = run(folder, [program]).findings
    for remedy in findings[0]["remedies"] if findings else ():
        if not remedy["changes"]:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / "case"
            shutil.copytree(folder, copy)
            apply(copy, remedy["changes"])
            again = run(copy, [program])
            same = [f for f in again.findings if f["symptom"] == findings[0]["symptom"]]
            wrong = ""
            if same:
                wrong = f"still {same[0]['cause']} of {same[0]['names'][:2]}"
            elif again.status:
                wrong = again.err.strip().splitlines()[-1]
            results.append((remedy["edit"], wrong))
    return results


def main(names: list[str]) -> int:
    """Print what each edit did; succeed when all work."""
    folders = [p.parent for p in sorted(CASES.glob("*/case.toml"))]
    folders = [f for f in folders if not names or f.name.startswith(tuple(names))]
    wanted = [
        f
        for f in folders
        if tomllib.loads((f / "case.toml").read_text())["symptom"] == "second-backward"
    ]
    preload()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        tried = list(pool.map(try_out, wanted))
    edits = [
        (f.name, *result) for f, results in zip(wanted, tried, strict=True) for result in results
    ]
    for name, edit, wrong in edits:
        print(f"{'MISS' if wrong else 'ok  '} {name:44} {edit}")
        if wrong:
            print(f"       {wrong}")
    wrong = sum(bool(w) for _, _, w in edits)
    print(f"{len(edits) - wrong} of {len(edits)} edits work; {len(wanted)} cases")
    return 0 if not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
