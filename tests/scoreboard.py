"""Runs the corpus of real faults under onegraph and prints what it got right, a line a case.

python tests/scoreboard.py [--part 1|all] [--details] [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.forked import preload, run

CASES = Path(__file__).parent / "cases"
ROLES = ("built", "joined", "freed", "failed", "mutated", "needed", "cut", "kept")


@dataclass
class Score:
    """What a run of one case got right."""

    name: str
    symptom: str
    wrong: list[str] = field(default_factory=list)
    found: str = ""
    fixed_findings: int = 0

    @property
    def right(self) -> bool:
        """Everything asked for is right."""
        return not self.wrong and not self.fixed_findings


def accepted(truth: dict[str, Any], role: str) -> set[tuple[str, int]]:
    """The places a case file accepts for a role."""
    places = set()
    for table in ("lines", "lines_also"):
        lines = truth.get(table, {}).get(role, [])
        for line in lines if isinstance(lines, list) else [lines]:
            file, _, number = str(line).rpartition(":")
            places.add((file or "repro.py", int(number)))
    return places


def judge(folder: Path) -> Score:
    """Compare the report of a case's programs with its truth."""
    truth = tomllib.loads((folder / "case.toml").read_text())
    score = Score(folder.name, truth["symptom"])
    try:
        findings = run(folder, ["repro.py"]).findings
        score.fixed_findings = len(run(folder, ["fixed.py"]).findings)
    except AssertionError as error:
        score.wrong = [f"no report: {error}"]
        return score
    if truth["symptom"] == "none":
        score.wrong = [f"finding {f['cause']}" for f in findings]
        return score
    if not findings:
        score.wrong = ["no finding"]
        return score
    first = findings[0]
    score.found = f"{first['cause']} {first['names']}"
    if first["symptom"] != truth["symptom"]:
        score.wrong.append(f"symptom {first['symptom']}")
    if first["cause"] not in {truth["cause"], *truth.get("cause_also", ())}:
        score.wrong.append(f"cause {first['cause']} (truth {truth['cause']})")
    for role in truth.get("lines", {}):
        sites = [(site["file"], site["line"]) for site in first["sites"].get(role, ())]
        if len(sites) > 2:
            score.wrong.append(f"{role}: {len(sites)} sites")
        if not set(sites) & accepted(truth, role):
            score.wrong.append(f"{role} {sites} (truth {sorted(accepted(truth, role))})")
        elif sites[0] not in accepted(truth, role):
            score.found += f" [{role} second]"
    if truth["names"] and not set(first["names"]) & set(truth["names"]):
        score.wrong.append(f"name {first['names']} (truth {truth['names']})")
    elif truth["names"] and first["names"][0] not in truth["names"]:
        score.found += " [name not first]"
    return score


def main() -> int:
    """Print the scoreboard; succeed when every case is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="case names or beginnings of them")
    parser.add_argument("--symptom", default="all", help="comma separated, or all")
    options = parser.parse_args()
    folders = sorted(p.parent for p in CASES.glob("*/case.toml"))
    if options.names:
        folders = [f for f in folders if f.name.startswith(tuple(options.names))]
    if options.symptom != "all":
        wanted = options.symptom.split(",")
        folders = [
            f for f in folders if tomllib.loads((f / "case.toml").read_text())["symptom"] in wanted
        ]
    preload()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        scores = list(pool.map(judge, folders))
    for score in scores:
        print(f"{'ok  ' if score.right else 'MISS'} {score.name:48} {score.found}")
        for reason in score.wrong:
            print(f"       {reason}")
        if score.fixed_findings:
            print(f"       fixed.py: {score.fixed_findings} finding(s)")
    right = sum(score.right for score in scores)
    print(f"{right} of {len(scores)} cases right")
    return 0 if right == len(scores) else 1


if __name__ == "__main__":
    sys.exit(main())
