"""Recording takes little memory, however long a program trains, and forgets nothing it needs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onegraph.recorder.packed import PatternStore
from onegraph.recorder.tape import Tape
from tests.memory.growth import KINDS

ROOT = Path(__file__).parents[2]


def promised(steps: int) -> float:
    """Bytes that recording may add: 20 MB over 100,000 steps, most of them step by step."""
    return 1e6 + 19e6 * steps / 100_000


def check(kind: str, steps: int) -> None:
    """Train in a process of its own, and see what it says of itself."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.growth", kind, str(steps)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["own"] < promised(steps), result
    assert result["recorded"] - result["bare"] < promised(steps), result
    # Each thread counts its nodes from nought: where several gave a number, the line is unknown.
    built = None if kind == "threaded" else "scale.exp()"
    assert result["sites"].get("built") == built
    assert result["sites"]["freed"] == "prior.sum().backward()"
    assert result["sites"]["failed"] == "(prior * 2).sum().backward()"
    assert result["seconds"] < 2


@pytest.mark.parametrize("kind", KINDS)
def test_growth(kind: str) -> None:
    """Recording adds little to a process, and a graph from before the first step has its lines."""
    check(kind, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_growth_over_100_000_steps(kind: str) -> None:
    """The same over 100,000 steps, which is some minutes for each kind."""
    check(kind, 100_000)


def test_finding_a_line_among_a_hundred_thousand_steps() -> None:
    """The tape of 100,000 steps is small, and is searched in a moment."""
    store = PatternStore()
    tape = Tape(0, store, 0, 0)
    for step in range(100_000):
        for call in range(20 + step % 7):
            tape.entries.extend((0, 2, call + 1))
            tape.last += 2
        tape.seal(step + 1)
    begun = time.perf_counter()
    numbers = range(0, tape.last, 397)
    found = list(tape.locate(numbers))
    recent = list(tape.runs(99_990))
    seconds = time.perf_counter() - begun
    assert len(found) > 10_000
    assert all(site > 0 for site, _, _ in found)
    assert found[0] == (1, 0, 0)
    assert found[-1][2] >= 99_990
    assert len({epoch for _, epoch in recent}) == 10
    assert seconds < 2
