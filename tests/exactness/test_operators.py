"""The lines of nodes, and bit-identical gradients, over torch's own operator database."""

import os
import warnings

import pytest
import torch

from tests.exactness.operators import differentiable, survey

# Samples of each operator: 1000 takes all there are, and a few minutes.
SAMPLES = int(os.environ.get("ONEGRAPH_SAMPLES", "4"))


@pytest.mark.slow
def test_every_operator(capsys: pytest.CaptureFixture[str]) -> None:
    """99.9 % of nodes have their line, none has a wrong one, and no gradient changes by a bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ops = differentiable()
        result = survey(ops, SAMPLES)
    with capsys.disabled():
        print(f"\n{result}")
    assert result.forward.wrong == []
    assert result.backward.wrong == []
    assert result.different == []
    assert result.skipped == []
    assert result.ops == len(ops) > 500
    for tally in (result.forward, result.backward):
        judged = tally.right + tally.unknown
        assert judged > 2 * result.samples
        assert tally.right >= 0.999 * judged, tally.missed


@pytest.mark.slow
def test_every_operator_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    """The same for the operators that have a form which writes in place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ops = [op for op in differentiable() if op.inplace_variant is not None]
        result = survey(ops, min(SAMPLES, 2), in_place=True)
    with capsys.disabled():
        print(f"\nin place: {result}")
    assert result.forward.wrong == []
    assert result.backward.wrong == []
    assert result.different == []
    judged = result.forward.right + result.forward.unknown
    assert judged > 2 * result.samples > 200
    assert result.forward.right >= 0.999 * judged, result.forward.missed


def test_the_database_is_that_of_this_torch() -> None:
    """The survey covers what torch says has a derivative, so a new torch brings new operators."""
    assert len(differentiable()) > 500, torch.__version__
