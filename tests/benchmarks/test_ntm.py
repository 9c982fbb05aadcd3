"""The speed table measures what it says."""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks import ntm
from onegraph.ntm import NTM, NTMCell
from onegraph.ntm.window import choice


@pytest.mark.parametrize("way", ntm.WAYS)
def test_a_way_decides_who_steps_and_is_put_back(way):
    """While its step runs a way decides how windows are stepped over, and nothing after it."""
    before = NTMCell._plan, choice.kernel.load
    model = NTM(9, 8, memory=(4, 3), hidden_size=5)
    x = torch.zeros(3, 1, 9)
    seen = []

    def step():
        planned = model.cell._plan(x, model.initial_state(1)) is not None
        seen.append((planned, choice.kernel.load()))

    ntm.by(way, step)()
    assert seen == [(way != "cell", way == "kernel")]
    assert (NTMCell._plan, choice.kernel.load) == before


def test_arithmetic_grows_with_what_there_is():
    """More heads and more memory cost more multiplications, the memory in proportion."""
    small = ntm.arithmetic(NTMCell(9))
    assert ntm.arithmetic(NTMCell(9, read_heads=8, write_heads=8)) > 3 * small
    few, more, most = (ntm.arithmetic(NTMCell(9, memory=(n, 20))) for n in (500, 1000, 2000))
    assert most - more == 2 * (more - few)


def test_a_ratio_is_taken_turn_by_turn():
    """A slow turn of the machine slows both, and leaves the ratio."""
    assert ntm.ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == 2.0


@pytest.mark.slow
def test_the_tables_are_printed(monkeypatch, capsys):
    """All of it runs."""
    monkeypatch.setattr(sys, "argv", ["ntm", "--quick"])
    monkeypatch.setattr(ntm, "LONG", (10, 100))
    ntm.main()
    out = capsys.readouterr().out
    assert "nn.LSTM, ms" in out
    assert "memory of 1024 × 64" in out
