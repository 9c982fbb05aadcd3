"""The needle task: facts, distances and answers stand where they are said to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.ntm.needle import Needle, NeedleBatch, haystack

DRAWS = settings(max_examples=30, deadline=None, derandomize=True)
TASKS = st.builds(
    Needle,
    distance=st.integers(0, 9),
    facts=st.integers(1, 4),
    questions=st.integers(1, 5),
    length=st.sampled_from([4, 8, 12]),
    farthest=st.integers(1, 4),
    names=st.integers(4, 6),
)


def draw(task, batch=3, seed=0):
    """A batch from a seed."""
    return task.draw(batch, torch.Generator().manual_seed(seed))


def solve(task, batch):
    """The answers, found by reading the tokens one by one: (S, B, 3), zeros where none is due."""
    answers = torch.zeros_like(batch.targets)
    sign = task.words + task.farthest
    for sample in range(batch.tokens.shape[1]):
        known, anchored = {}, {}
        for segment, tokens in enumerate(batch.tokens[:, sample].tolist()):
            kinds = [token for token in tokens if task.words <= token < sign]
            names = [
                (place, token - sign - 1) for place, token in enumerate(tokens) if token > sign
            ]
            if not names:
                anchored.update(dict.fromkeys(kinds, segment))
                continue
            ((place, name),) = names
            if sign not in tokens:
                (kind,) = kinds
                known[name] = (name, place // (task.length // 4), segment - anchored[kind] - 1)
            answers[segment, sample] = torch.tensor(known[name])
    return answers


@DRAWS
@given(TASKS, st.integers(0, 1000))
def test_targets_follow_from_the_tokens(task, seed):
    """One who reads every token finds exactly the targets."""
    batch = draw(task, seed=seed)
    assert torch.equal(solve(task, batch), batch.targets)


@DRAWS
@given(TASKS)
def test_shapes_and_distances(task):
    """Facts stand at the ends of their blocks, questions after exactly `distance` segments."""
    batch = draw(task)
    block = task.farthest + 1
    segments = task.facts * block + task.distance + task.questions
    assert batch.tokens.shape == (segments, 3, task.length)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < task.vocabulary
    told = [segment for segment in range(segments) if batch.told[segment].all()]
    asked = [segment for segment in range(segments) if batch.asked[segment].all()]
    assert told == [block * (k + 1) - 1 for k in range(task.facts)]
    assert asked == list(range(segments - task.questions, segments))
    assert asked[0] - told[-1] - 1 == task.distance
    assert batch.told.sum() + batch.asked.sum() == 3 * (len(told) + len(asked))
    between = batch.tokens[told[-1] + 1 : asked[0]]
    assert (between < task.words).all()
    sizes = torch.tensor(task.answers)
    assert (batch.targets < sizes).all()
    assert task.classes == sizes.sum()


def test_equal_seeds_give_equal_batches():
    """A batch is drawn from the generator alone; another seed gives another."""
    task = Needle()
    one = draw(task, 16, 5)
    torch.rand(7)
    for mine, other in zip(one, draw(task, 16, 5), strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(one.tokens, draw(task, 16, 6).tokens)


def test_a_batch_is_the_same_everywhere():
    """The facts of a seed are these, whatever the haystack."""
    batch = draw(Needle(distance=1, facts=2, questions=2), 2, 1)
    assert batch.targets[batch.told].tolist() == TOLD
    assert batch.targets[batch.asked].tolist() == ASKED


TOLD = [[2, 2, 1], [5, 3, 0], [4, 0, 0], [1, 1, 1]]
ASKED = [[2, 2, 1], [1, 1, 1], [2, 2, 1], [5, 3, 0]]


def test_distances_drawn_a_batch():
    """With `nearest`, distances from it to `distance` come, both included, and no others."""
    task = Needle(distance=4, nearest=2)
    generator = torch.Generator().manual_seed(0)
    blocks = task.facts * (task.farthest + 1) + task.questions
    drawn = {len(task.draw(1, generator).tokens) - blocks for _ in range(60)}
    assert drawn == {2, 3, 4}


def test_attributes_are_uniform():
    """No answer is likelier than another, so guessing is right in 1 / (4 · farthest)."""
    batch = draw(Needle(), 2000)
    asked = batch.targets[batch.asked]
    for part, size in zip(asked.unbind(-1), Needle().answers, strict=True):
        shares = torch.bincount(part, minlength=size) / len(part)
        assert (shares - 1 / size).abs().max() < 0.03


def test_the_haystack_is_program_text():
    """The haystack has many tokens, all below `words`, and the commonest sign is common."""
    text = haystack(64)
    assert len(text) > 10_000
    shares = torch.bincount(text, minlength=64) / len(text)
    assert len(shares) == 64
    assert shares.max() > 0.04
    assert (shares > 0).all()


def test_scores():
    """An answer counts when who, where and which are right; the loss falls to 0 for the truth."""
    task = Needle(distance=0)
    batch = draw(task, 4)
    starts = torch.tensor([0, task.names, task.names + 4])
    truth = torch.zeros(*batch.asked.shape, task.classes)
    truth.scatter_(-1, batch.targets + starts, 50.0)
    assert task.accuracy(truth, batch) == 1
    assert task.loss(truth, batch) < 1e-6
    uniform = task.loss(torch.zeros_like(truth), batch)
    torch.testing.assert_close(uniform, 2 * torch.tensor(task.answers).log().sum())
    wrong = truth.clone()
    segment, sample = batch.asked.nonzero()[0].tolist()
    wrong[segment, sample, task.names : task.names + 4] *= -1
    assert task.accuracy(wrong, batch) == 1 - 1 / int(batch.asked.sum())
    assert task.right(wrong, batch).sum(0).tolist() == [16, 15, 16]


def test_windows_without_questions_cost_nothing():
    """A part of a document in which nothing is told or asked has a loss of 0, not of NaN."""
    task = Needle(distance=3)
    batch = draw(task)
    first = NeedleBatch(*(each[:1] for each in batch))
    logits = torch.zeros(1, 3, task.classes, requires_grad=True)
    assert task.loss(logits, first) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"facts": 7}, "7 facts cannot have different ones of 6 names"),
        ({"facts": 0}, "0 facts"),
        ({"length": 6}, "length is 6; it must be a multiple of 4"),
        ({"nearest": 9}, "no distance lies between 9 and 8"),
        ({"distance": -1}, "no distance lies between"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named(options, message):
    """Options that contradict each other are an error that says how."""
    with pytest.raises(ValueError, match=message):
        Needle(**options)
