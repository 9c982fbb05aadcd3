"""The lines of nodes, and bit-identical gradients, over torch's own operator database."""

import warnings

import pytest
import torch

from tests.exactness.operators import differentiable, survey


def check(capsys: pytest.CaptureFixture[str], samples: int, *, in_place: bool = False) -> None:
    """Survey the database, print what came of it, and hold it to what is promised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ops = [op for op in differentiable() if not in_place or op.inplace_variant is not None]
        result = survey(ops, samples, in_place=in_place)
    with capsys.disabled():
        print(f"\n{result}")
    assert result.forward.wrong == []
    assert result.backward.wrong == []
    assert result.different == []
    # Not every operator's samples can be written over.
    assert in_place or result.ops == len(ops)
    for tally in (result.forward, result.backward):
        judged = tally.right + tally.unknown
        assert judged > 2 * result.samples
        assert tally.right >= 0.999 * judged, tally.missed


def test_every_operator(capsys: pytest.CaptureFixture[str]) -> None:
    """99.9 % of nodes have their line, none has a wrong one, and no gradient changes by a bit."""
    check(capsys, 4)


def test_every_operator_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    """The same for the operators that have a form which writes in place."""
    check(capsys, 2, in_place=True)


@pytest.mark.slow
def test_every_sample_of_every_operator(capsys: pytest.CaptureFixture[str]) -> None:
    """The same over all samples there are, which is some minutes."""
    check(capsys, 1_000)


def test_the_database_is_that_of_this_torch() -> None:
    """The survey covers what torch says has a derivative, so a new torch brings new operators."""
    assert len(differentiable()) > 500, torch.__version__
