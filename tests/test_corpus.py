"""The corpus of real faults: symptom, cause, every role and the name, and silence when repaired."""

from __future__ import annotations

import tomllib

import pytest

from tests.scoreboard import CASES, judge

WANTED = ("second-backward", "none")
FOLDERS = [
    path.parent
    for path in sorted(CASES.glob("*/case.toml"))
    if tomllib.loads(path.read_text())["symptom"] in WANTED
]


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder):
    """The first finding tells the truth of the case, and its repair gives no finding."""
    score = judge(folder)
    assert score.right, (score.wrong, score.fixed_findings)
