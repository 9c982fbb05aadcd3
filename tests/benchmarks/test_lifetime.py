"""The benchmark of the primitives runs, every table of it. No number is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import forms
from benchmarks.lifetime import TABLES

ROOT = Path(__file__).resolve().parents[2]


def test_saved_tensors_are_counted_once_and_let_go() -> None:
    """Memory that two nodes save counts once, and no more after the backward."""
    x = torch.ones(256, requires_grad=True)
    with forms.held([x]) as count:
        y = x.exp()
        loss = (y * y).sum()
        assert count.most == 1024
        loss.backward()
        (x.exp().sin()).sum().backward()
    assert count.most == 1024


@pytest.mark.parametrize(
    ("case", "reference"),
    [
        (forms.trunk(3, 12, 4, torch.float64), "summed"),
        (forms.pairs(7, 4, 3, 5, torch.float64), "whole matrix"),
        (forms.contrast(16, 8, 4, torch.float64), "whole batch"),
    ],
)
def test_forms_give_one_gradient(case: forms.Case, reference: str) -> None:
    """The forms that are compared compute the same."""
    for form in case.forms:
        torch.testing.assert_close(case.gradients(form), case.gradients(reference))


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_measured(table: str, tmp_path: Path) -> None:
    """With token effort each table is printed and its numbers are written as JSON."""
    file = tmp_path / "lifetime.json"
    command = [sys.executable, "-m", "benchmarks.lifetime", "--effort", "token"]
    done = subprocess.run(
        [*command, "--tables", table, "--json", str(file)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "| " in done.stdout
    assert set(json.loads(file.read_text())) == {"machine", "effort", table}
