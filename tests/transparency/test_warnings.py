"""Warnings keep their place, their filters and their number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.transparency.pairs import PROGRAMS, run_both

PROGRAM = PROGRAMS / "warnings_shown.py"
KINDS = re.findall(r'^    "([a-z-]+)":', PROGRAM.read_text(), re.MULTILINE)
# The others run with `-m slow`.
QUICK = {"each-place", "error", "error-but-main", "once", "only-main", "reset"}
OPTIONS = {
    "error": ["-W", "error"],
    "default": ["-W", "default"],
    "once": ["-W", "once"],
    "main": ["-W", "error::UserWarning:__main__"],
    "development": ["-X", "dev"],
    "optimized": ["-O"],
    "isolated": ["-I"],
}


@pytest.mark.parametrize(
    "kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_filters_of_the_program(kind: str, tmp_path: Path) -> None:
    """Whatever filters a program sets, the same warnings are shown, recorded or raised."""
    pair = run_both(PROGRAM, [kind], folder=tmp_path)
    assert pair.recorded == pair.bare
    assert pair.bare.status == 0


@pytest.mark.parametrize(
    "name", [n if n == "error" else pytest.param(n, marks=pytest.mark.slow) for n in OPTIONS]
)
def test_interpreter_option(name: str, tmp_path: Path) -> None:
    """The interpreter's own options hold for the program as they do alone."""
    pair = run_both(PROGRAM, folder=tmp_path, options=OPTIONS[name])
    assert pair.recorded == pair.bare


def test_filters_of_the_environment(tmp_path: Path) -> None:
    """PYTHONWARNINGS holds for the program, and our own imports raise none of what it forbids."""
    pair = run_both(PROGRAM, folder=tmp_path, PYTHONWARNINGS="error,default::UserWarning")
    assert pair.recorded == pair.bare
