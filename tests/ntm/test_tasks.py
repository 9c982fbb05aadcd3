"""The tasks: every bit of a batch is what the paper describes, and equal seeds repeat it."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch

from onegraph.ntm import tasks
from onegraph.ntm.tasks import TASKS, AssociativeRecall, Copy, NGrams, PrioritySort, RepeatCopy

MIXED = {
    "copy": {"longest": 6, "mixed": True},
    "repeat-copy": {"longest": 5, "most": 4, "mixed": True},
    "associative-recall": {"mixed": True},
    "ngrams": {"length": 40},
    "priority-sort": {},
}


def draw(task, batch=8, seed=0):
    """A batch of a task."""
    return task.draw(batch, torch.Generator().manual_seed(seed))


def rows(batch, sample):
    """The sample's inputs and the targets that count, as lists of lists of whole numbers."""
    inputs = batch.inputs[:, sample].tolist()
    return inputs, batch.targets[batch.mask[:, sample], sample].tolist()


@pytest.mark.parametrize("name", TASKS)
def test_batches_are_well_formed_and_repeat(name):
    """Shapes are as declared, targets are bits and 0 where masked, and seeds decide everything."""
    task = TASKS[name](**MIXED[name])
    batch = draw(task)
    steps = len(batch.inputs)
    assert batch.inputs.shape == (steps, 8, task.input_size)
    assert batch.targets.shape == (steps, 8, task.output_size)
    assert batch.mask.shape == (steps, 8)
    assert batch.mask.dtype == torch.bool
    assert set(batch.targets.unique().tolist()) == {0, 1}
    assert (batch.targets[~batch.mask] == 0).all()
    assert batch.mask.any(0).all()
    again, other = draw(task), draw(task, seed=1)
    for one, two in zip(batch, again, strict=True):
        assert torch.equal(one, two)
    assert batch.inputs.shape != other.inputs.shape or not torch.equal(batch.inputs, other.inputs)


@pytest.mark.parametrize("name", ["copy", "repeat-copy", "associative-recall"])
def test_unmixed_batches_have_no_padding(name):
    """Unless mixed, all sequences of a batch end together, at the last step."""
    for seed in range(5):
        batch = draw(TASKS[name](), seed=seed)
        assert batch.mask[-1].all()
        assert (batch.mask == batch.mask[:, :1]).all()


@pytest.mark.parametrize("mixed", [False, True])
def test_copy(mixed):
    """The vectors, the delimiter alone, then silence while the same vectors are due."""
    lengths = set()
    for seed in range(10):
        batch = draw(Copy(bits=3, shortest=2, longest=5, mixed=mixed), seed=seed)
        for sample in range(8):
            inputs, targets = rows(batch, sample)
            length = len(targets)
            lengths.add(length)
            assert inputs[:length] == [[*vector, 0] for vector in targets]
            assert inputs[length] == [0, 0, 0, 1]
            assert all(row == [0] * 4 for row in inputs[length + 1 :])
            due = batch.mask[:, sample].nonzero().flatten().tolist()
            assert due == list(range(length + 1, 2 * length + 1))
    assert lengths == {2, 3, 4, 5}


def test_copy_of_length_20_takes_41_steps():
    """The longest sequence of the standard task is 41 steps of 9 inputs."""
    assert draw(Copy(shortest=20)).inputs.shape == (41, 8, 9)


@pytest.mark.parametrize("mixed", [False, True])
def test_repeat_copy(mixed):
    """The vectors, their number of repeats with a delimiter, then the repeats and an end marker."""
    seen = set()
    for seed in range(60):
        task = RepeatCopy(bits=3, shortest=1, longest=3, fewest=1, most=3, mixed=mixed)
        batch = draw(task, seed=seed)
        for sample in range(8):
            inputs, targets = rows(batch, sample)
            length = [row[3] for row in inputs].index(1)
            vectors = [row[:3] for row in inputs[:length]]
            repeats = (len(targets) - 1) // length
            seen.add((length, repeats))
            assert targets == [[*row, 0] for row in vectors * repeats] + [[0, 0, 0, 1]]
            assert inputs[length][:4] == [0, 0, 0, 1]
            assert inputs[length][4] == pytest.approx((repeats - 5.5) / math.sqrt(99 / 12))
            assert all(row[3:] == [0, 0] for row in inputs[:length])
            assert all(row == [0] * 5 for row in inputs[length + 1 :])
    assert seen == set(itertools.product((1, 2, 3), repeat=2))


def test_more_repeats_keep_the_scale_of_training():
    """The number's scale does not move when more repeats are asked for than in training."""
    batch = draw(RepeatCopy(fewest=20, most=20))
    assert batch.inputs[..., -1].max().item() == pytest.approx(14.5 / math.sqrt(99 / 12))


@pytest.mark.parametrize("mixed", [False, True])
def test_associative_recall(mixed):
    """Items behind delimiters, a query between two others, then the item that followed it."""
    counts, places = set(), set()
    for seed in range(20):
        batch = draw(AssociativeRecall(bits=4, vectors=2, most=4, mixed=mixed), seed=seed)
        for sample in range(8):
            inputs, targets = rows(batch, sample)
            listed = [row[5] for row in inputs].index(1)
            count = listed // 3
            counts.add(count)
            items = []
            for at in range(0, listed, 3):
                assert inputs[at] == [0, 0, 0, 0, 1, 0]
                items.append(inputs[at + 1 : at + 3])
            assert inputs[listed] == inputs[listed + 3] == [0, 0, 0, 0, 0, 1]
            query = inputs[listed + 1 : listed + 3]
            assert all(row == [0] * 6 for row in inputs[listed + 4 :])
            answers = [item for asked, item in itertools.pairwise(items) if asked == query]
            assert [[*row, 0, 0] for row in targets] in answers
            places.add(items.index(query))
            due = batch.mask[:, sample].nonzero().flatten().tolist()
            assert due == [listed + 4, listed + 5]
    assert counts == {2, 3, 4}
    assert places == {0, 1, 2}


def test_ngrams():
    """Each target is the next input, and the first bits, whose context is short, do not count."""
    batch = draw(NGrams(length=50))
    assert batch.inputs.shape == (49, 8, 1)
    assert batch.mask[:, 0].tolist() == [False] * 4 + [True] * 45
    assert torch.equal(batch.inputs[5:], batch.targets[4:-1])


def test_ngrams_follow_their_table():
    """With one bit of context the bits after 0 and after 1 have frequencies of their own."""
    batch = draw(NGrams(order=2, length=4000), batch=16)
    before, after = batch.inputs[..., 0], batch.targets[..., 0]
    chances = torch.stack(
        [(after * (before == bit)).sum(0) / (before == bit).sum(0) for bit in (0, 1)]
    )
    # Beta(½, ½) has mean ½ and standard deviation 0.354.
    assert 0.25 < chances[chances.isfinite()].std() < 0.45
    halves = [batch.targets[part, :, 0] for part in (slice(0, 2000), slice(2000, None))]
    torch.testing.assert_close(halves[0].mean(0), halves[1].mean(0), atol=0.2, rtol=0)


def test_bayes_bits_by_hand():
    """The cost of a short sequence is what the estimator's formula gives, bit by bit."""
    bits = [0, 1, 1, 0, 1, 1]
    steps = torch.tensor(bits, dtype=torch.float32).view(-1, 1, 1)
    batch = tasks.Batch(steps[:-1], steps[1:], torch.ones(5, 1, dtype=torch.bool))
    # After 0: 1, then 1. After 1: 1, 0, 1.
    chances = [1 / 2, 1 / 2, 0.5 / 2, (1 + 0.5) / 2, (1 + 0.5) / 3]
    expected = -sum(math.log2(chance) for chance in chances)
    assert NGrams(order=2).bayes_bits(batch).item() == pytest.approx(expected)


def test_bayes_beats_knowing_nothing():
    """Over many sequences the estimator costs less than a bit a bit, and not implausibly little."""
    task = NGrams()
    cost = task.bayes_bits(draw(task, batch=64)).mean()
    assert 100 < cost < 160


def test_priority_sort():
    """Those of highest priority are due, highest first."""
    batch = draw(PrioritySort(bits=4, shown=6, asked=3))
    assert batch.inputs.shape == (10, 8, 6)
    for sample in range(8):
        inputs, targets = rows(batch, sample)
        ranked = sorted(inputs[:6], key=lambda row: -row[4])
        assert targets == [row[:4] for row in ranked[:3]]
        assert inputs[6] == [0, 0, 0, 0, 0, 1]
        assert all(row == [0] * 6 for row in inputs[7:])
        assert all(-1 <= row[4] < 1 for row in inputs[:6])


def test_loss_is_bits_per_sequence():
    """Knowing nothing costs a bit a bit that counts, and steps that do not count cost nothing."""
    batch = draw(Copy(shortest=5, longest=5))
    logits = torch.zeros_like(batch.targets)
    assert tasks.loss(logits, batch).item() == pytest.approx(40)
    logits[~batch.mask] = float("nan")
    logits.requires_grad_()
    cost = tasks.loss(logits, batch)
    assert cost.item() == pytest.approx(40)
    cost.backward()
    assert logits.grad.isfinite().all()


def test_bit_errors_count_each_sequence():
    """Perfect logits have no errors, and each bit turned round in what counts is one."""
    batch = draw(Copy(shortest=5, longest=5))
    logits = 2 * batch.targets - 1
    assert tasks.bit_errors(logits, batch).tolist() == [0] * 8
    logits[6, 3] *= -1
    logits[0] = 1
    assert tasks.bit_errors(logits, batch).tolist() == [0, 0, 0, 8, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Copy(shortest=3, longest=2), "no number lies between 3 and 2, with 1 the least allowed"),
        (AssociativeRecall(fewest=1), "fewest is 1; a query needs an item that follows it"),
        (PrioritySort(shown=3, asked=4), "4 of 3 vectors cannot be asked for"),
        (Copy(bits=0), "bits is 0; it must be at least 1"),
        (RepeatCopy(bits=0), "bits is 0; it must be at least 1"),
        (RepeatCopy(scale=0), "scale is 0; it must be at least 1"),
        (AssociativeRecall(bits=0), "bits is 0; it must be at least 1"),
        (AssociativeRecall(vectors=0), "vectors is 0; it must be at least 1"),
        (PrioritySort(bits=0), "bits is 0; it must be at least 1"),
        (NGrams(order=0), "order is 0; it must be at least 1"),
        (NGrams(length=5), "length is 5; it must be at least 6"),
        (NGrams(order=1, length=1), "length is 1; it must be at least 2"),
    ],
)
def test_options_that_make_no_sense_are_told(task, message):
    """A task that cannot be drawn, or of which nothing would be scored, says why."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        draw(task)


@pytest.mark.parametrize("task", [NGrams(length=6), NGrams(order=1, length=2), Copy(longest=1)])
def test_the_smallest_tasks_score_something(task):
    """The smallest sizes that are let through leave each sequence a bit that counts."""
    batch = draw(task)
    assert batch.mask.any(0).all()
    assert batch.targets.shape[-1] > 0
