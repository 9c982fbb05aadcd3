"""Programs without a fault: silence is part of the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import forked

PROGRAMS = sorted((Path(__file__).parent / "healthy").glob("*.py"))


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_healthy_program(program):
    """A healthy training program ends as it should and gives no finding."""
    run = forked.run(program.parent, [program.name])
    assert run.status == 0, run.err
    assert run.findings == []
