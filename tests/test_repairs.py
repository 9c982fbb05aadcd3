"""The edits that reports print are right: applied to the program, they end its failure."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.repairs import CASES, try_out

FOLDERS = [
    path.parent
    for path in sorted(CASES.glob("*/case.toml"))
    if tomllib.loads(path.read_text())["symptom"] == "second-backward"
]


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_printed_edits_work(folder: Path) -> None:
    """Each edit of a case's first finding, applied, lets the program run to its end."""
    assert [(edit, wrong) for edit, wrong in try_out(folder) if wrong] == []
