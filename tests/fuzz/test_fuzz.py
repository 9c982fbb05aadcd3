"""Random programs: the planted fault is named with its line, and a sound program gets no word."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings

from tests import forked
from tests.fuzz.programs import FAULTS, HERE, Program, programs

_QUIET = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    derandomize=False,
)


def check(program: Program) -> None:
    """Run a program and compare the first finding with what was planted."""
    note(program.text)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(program.text)
        run = forked.run(Path(folder), ["train.py"])
    found = run.findings
    expected = FAULTS[program.fault]
    if expected is None:
        assert (run.status, found) == (0, []), run.err
        return
    cause, role = expected
    assert [f["cause"] for f in found[:1]] == [cause], run.err
    mark = "# MADE" if program.fault == "cached" else HERE
    lines = [k for k, text in enumerate(program.text.splitlines(), 1) if text.endswith(mark)]
    assert lines[0] in [site["line"] for site in found[0]["sites"][role]], run.err


@pytest.mark.usefixtures("torch_loaded")
@given(program=programs())
@settings(_QUIET, max_examples=40, derandomize=True, print_blob=False)
def test_random_programs(program: Program) -> None:
    """A few random programs; `-m slow` tries 2,000."""
    check(program)


@pytest.mark.slow
@pytest.mark.usefixtures("torch_loaded")
@given(program=programs())
@settings(_QUIET, max_examples=2_000)
def test_two_thousand_random_programs(program: Program) -> None:
    """The same at length."""
    check(program)
