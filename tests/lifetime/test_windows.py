"""Sequences in windows: nothing lost, nothing counted twice, weights that add up."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from onegraph.lifetime import assert_detached, backward_windows, detach, windows

DOUBLE = torch.float64


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 8), st.sampled_from([0, 1]))
def test_each_step_counts_once(length: int, steps: int, overlap: int, dim: int) -> None:
    """Together the windows hold every step, each with a loss once, and their shares sum to 1."""
    overlap = min(overlap, steps - 1)
    x = torch.arange(float(length)).unsqueeze(1 - dim).expand(*((length, 2), (2, length))[dim])
    seen = torch.zeros(length)
    share = 0.0
    found = list(windows({"x": x}, steps, overlap=overlap, dim=dim))
    for k, window in enumerate(found):
        assert torch.equal(window.data["x"], x.narrow(dim, window.start, len(window)))
        assert len(window) <= steps
        assert window.last == (k == len(found) - 1)
        seen[window.start + window.warm : window.stop] += 1
        share += window.share
        if not window.last:
            assert window.start + window.carry == found[k + 1].start
    assert torch.equal(seen, torch.ones(length))
    assert share == pytest.approx(1)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 3), st.sampled_from([0, 1]), st.data())
def test_weighed_losses_sum_to_the_mean(
    length: int, steps: int, overlap: int, dim: int, data: Any
) -> None:
    """Step by step or as means, the windows' parts add up to the whole sequence's mean loss."""
    overlap = min(overlap, steps - 1)
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, length), min_size=3, max_size=3)))
    loss = torch.randn(length, 3, dtype=DOUBLE)
    inside = torch.arange(length).unsqueeze(1) < lengths
    mean = loss[inside].sum() / max(1, int(inside.sum()))
    laid = loss if dim == 0 else loss.t()
    total = sum(
        float(w.weigh(w.data))
        for w in windows(laid, steps, overlap=overlap, dim=dim, lengths=lengths)
    )
    assert total == pytest.approx(float(mean), abs=1e-9)
    plain = sum(float(w.weigh(w.data)) for w in windows(laid, steps, overlap=overlap, dim=dim))
    assert plain == pytest.approx(float(loss.mean()))
    means = sum(
        float(w.weigh(w.data[w.warm :].mean())) for w in windows(loss, steps, overlap=overlap)
    )
    assert means == pytest.approx(float(loss.mean()))


def test_weights_of_steps_make_windows_without_a_loss() -> None:
    """Where no step counts, the window says that it is empty, and its loss may be anything."""
    weights = torch.tensor([0.0, 0, 0, 0, 1, 3])
    loss = torch.tensor([float("nan")] * 4 + [2.0, 6.0])
    found = list(windows(loss, 2, weights=weights))
    assert [w.empty for w in found] == [True, True, False]
    assert [float(w.weigh(w.data)) for w in found] == [0, 0, 5]


def test_truncated_training_is_that_of_the_hand_written_loop() -> None:
    """Gradients and states equal those of the loop that everyone writes."""
    torch.manual_seed(0)
    cell, head = nn.LSTM(3, 4).double(), nn.Linear(4, 1).double()
    x, y = torch.randn(11, 2, 3, dtype=DOUBLE), torch.randn(11, 2, 1, dtype=DOUBLE)
    parameters = [*cell.parameters(), *head.parameters()]
    state: Any = (torch.zeros(1, 2, 4, dtype=DOUBLE), torch.zeros(1, 2, 4, dtype=DOUBLE))

    by_hand = state
    for at in range(0, 11, 4):
        out, by_hand = cell(x[at : at + 4], by_hand)
        loss = (head(out) - y[at : at + 4]).pow(2).sum() / y.numel()
        loss.backward()
        by_hand = tuple(part.detach() for part in by_hand)
    expected = [p.grad.clone() for p in parameters]
    cell.zero_grad(), head.zero_grad()

    now = state
    for window in windows((x, y), 4):
        inputs, targets = window.data
        out, now = cell(inputs, now)
        window.weigh((head(out) - targets).pow(2).mean()).backward()
        now = detach(now)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-12)
    for one, other in zip(now, by_hand, strict=True):
        assert torch.equal(one, other)
    cell.zero_grad(), head.zero_grad()

    def step(data: Any, before: Any) -> Any:
        out, after = cell(data[0], before)
        return (head(out) - data[1]).pow(2).mean(), after

    loss, last = backward_windows(step, (x, y), 4, state)
    assert_detached((loss, last))
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-12)


def test_finished_samples_keep_their_state() -> None:
    """A state stays as it was at the sample's last step, window by window and step by step."""
    x = torch.ones(6, 3)
    lengths = torch.tensor([6, 3, 1])
    total = torch.zeros(3)
    for window in windows(x, 2, lengths=lengths):
        for t, row in enumerate(window.data):
            total = window.freeze({"sum": total + row}, {"sum": total}, t)["sum"]
    assert total.tolist() == [6, 3, 1]
    total = torch.zeros(3)
    for window in windows(x, 2, lengths=lengths):
        total = window.freeze(total + 1, total)
    assert total.tolist() == [3, 2, 1]
    assert window.mask is not None


def test_freeze_needs_the_same_nest() -> None:
    """A state whose parts differ from the old one's is an error that names the part."""
    (window,) = windows(torch.ones(1, 2), 1, lengths=torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=r"no state\['b'\]"):
        window.freeze({"b": torch.ones(2)}, {"a": torch.ones(2)})


def test_a_stream_is_read_one_window_ahead() -> None:
    """An endless stream of steps gives windows as they come."""
    read = []

    def stream() -> Any:
        for k in itertools.count():
            read.append(k)
            yield {"x": torch.full((2,), float(k)), "name": "step"}

    first, second = itertools.islice(windows(stream(), 3, overlap=1), 2)
    assert first.data["x"][:, 0].tolist() == [0, 1, 2]
    assert second.data["x"][:, 0].tolist() == [2, 3, 4]
    assert (first.share, second.share) == (1, pytest.approx(2 / 3))
    assert len(read) == 7
    last = list(windows((torch.ones(2) for _ in range(5)), 2, dim=1))
    assert [(len(w), w.last, w.share) for w in last] == [
        (2, False, 1),
        (2, False, 1),
        (1, True, 0.5),
    ]
    assert last[0].data.shape == (2, 2)
    assert list(windows(iter(()), 2)) == []


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(1, 6), st.integers(0, 5))
def test_a_stream_cuts_as_a_sequence_does(length: int, steps: int, overlap: int) -> None:
    """Windows of a stream are those of the same steps in one tensor."""
    overlap = min(overlap, steps - 1)
    x = torch.arange(float(length))
    one = list(windows(x, steps, overlap=overlap))
    other = list(windows(iter(x), steps, overlap=overlap))
    assert [w.data.tolist() for w in one] == [w.data.tolist() for w in other]
    assert [(w.start, w.stop, w.warm, w.carry, w.last) for w in one] == [
        (w.start, w.stop, w.warm, w.carry, w.last) for w in other
    ]


def test_a_delay_longer_than_a_window_is_warned_about_once() -> None:
    """What is read later than a window after it was written is told, a single time."""
    with pytest.warns(UserWarning, match="up to 71 steps after it was written"):
        windows(torch.ones(4, 1), 2, delay=71)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        windows(torch.ones(4, 1), 2, delay=71)
        windows(torch.ones(4, 1), 2, delay=2)


def test_wrong_sequences_are_named() -> None:
    """Differing lengths, wrong sizes and options that streams cannot have are errors at once."""
    with pytest.raises(ValueError, match=r"sequence\[0\] has 3, sequence\[1\] has 4"):
        windows((torch.ones(3, 1), torch.ones(4, 1)), 2)
    with pytest.raises(ValueError, match="2 steps with an overlap of 2"):
        windows(torch.ones(3, 1), 2, overlap=2)
    with pytest.raises(ValueError, match="holds no tensor"):
        windows((1, 2), 2)
    with pytest.raises(ValueError, match="not streams"):
        windows(iter(torch.ones(3, 1)), 2, lengths=torch.tensor([1]))
    with pytest.raises(ValueError, match="write the loop"):
        backward_windows(lambda d, s: (d, s), torch.ones(3, 1), 2, None, overlap=1)


def test_only_the_last_window_synchronises() -> None:
    """Modules that can wait do so in all windows but the last; others are left alone."""
    entered = []

    class Wrapped:
        def no_sync(self) -> Any:
            entered.append("in")
            return warnings.catch_warnings()

    for window in windows(torch.ones(5, 1), 2):
        with window.sync(Wrapped(), nn.Linear(1, 1)):
            pass
    assert entered == ["in", "in"]
