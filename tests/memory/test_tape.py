"""The tape and its compact stores give back what was put in."""

from __future__ import annotations

import os
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.recorder import packed
from onegraph.recorder.packed import PackedInts, PatternStore
from onegraph.recorder.tape import Tape

MADE, ENGINE, UNSEEN = "made", "engine", "unseen"

# A call is (site, what happens in it): nodes it makes, calls below it, calls of the engine.
_CALLS = st.recursive(
    st.just(MADE),
    lambda inner: st.tuples(
        st.integers(1, 5), st.lists(inner | st.just(MADE) | st.just(ENGINE), max_size=5)
    ),
    max_leaves=30,
)
_PROGRAMS = st.lists(_CALLS | st.just(ENGINE) | st.just(UNSEEN), max_size=40)


class Run:
    """Runs such a program as the recorder would see it, and knows the truth."""

    def __init__(self, first: int) -> None:
        self.store = PatternStore()
        self.tape = Tape(0, self.store, first, 0)
        self.number, self.epoch = first, 0
        # number -> (site, epoch), and those whose outer calls the engine did not interrupt.
        self.truth: dict[int, tuple[int, int]] = {}
        self.certain: set[int] = set()

    def run(self, items: list[Any], site: int) -> None:
        """Do what the items say, within a call from the site."""
        for item in items:
            if item == ENGINE:
                self.epoch += 1
                self.tape.seal(self.epoch)
            elif item in (MADE, UNSEEN):
                if site > 0 or item == UNSEEN:
                    self.truth[self.number] = (site, self.epoch)
                    self.number += 1
            else:
                self._call(*item)

    def _call(self, site: int, items: list[Any]) -> None:
        before, epoch = self.number, self.epoch
        self.run(items, site)
        after = self.number
        if after != before:
            self.tape.entries.extend((before - self.tape.last, after - before, site))
            self.tape.last = after
        if epoch == self.epoch:
            self.certain.update(range(before, after))
        else:
            self.certain.difference_update(
                n for n in range(before, after) if self.truth[n][0] == site
            )


@given(program=_PROGRAMS, first=st.integers(0, 3))
@settings(deadline=None, max_examples=300)
def test_a_number_is_found_in_the_innermost_call_around_it(program: list[Any], first: int) -> None:
    """Every number has the site and time of the innermost call that made it, or none."""
    run = Run(first)
    run.run(program, -1)
    numbers = list(range(first - 1, run.number + 2))
    found = dict(zip(numbers, run.tape.locate(numbers), strict=True))
    for number in numbers:
        site, _, epoch = found[number]
        true_site, true_epoch = run.truth.get(number, (-1, -1))
        assert site in (true_site, -1)
        if number in run.certain:
            assert (site, epoch) == (true_site, true_epoch)
        if true_site >= 0:
            assert run.tape.gave(number)
    assert not run.tape.gave(run.number + 1)


@given(program=_PROGRAMS)
@settings(deadline=None, max_examples=100)
def test_looking_for_one_number_or_for_all(program: list[Any]) -> None:
    """A number is found in the same place whether it is looked for alone or with others."""
    run = Run(0)
    run.run(program, -1)
    numbers = list(range(run.number))
    alone = [next(run.tape.locate([number])) for number in numbers]
    assert alone == list(run.tape.locate(numbers))


def test_runs_since_an_engine_call() -> None:
    """What ran is told with its time, and from a given time on."""
    tape = Tape(0, PatternStore(), 10, 0)
    for epoch in range(5):
        tape.entries.extend((0, 3, 1, 1, 2, 3))
        tape.last += 6
        tape.seal(epoch + 1)
    assert list(tape.runs(3)) == [(1, 3), (3, 3), (1, 4), (3, 4)]


def test_calls_in_a_row_from_one_expression_are_one_run() -> None:
    """Equal ``call`` values mean the same unbroken run of an expression."""
    tape = Tape(0, PatternStore(), 0, 0)
    for site in (1, 1, 2, 1):
        tape.entries.extend((0, 2, site))
        tape.last += 2
    calls = [call for _, call, _ in tape.locate(range(8))]
    assert calls == [0, 0, 0, 0, 2, 2, 3, 3]


@given(
    values=st.lists(st.integers(-(2**61), 2**61), max_size=200),
    block=st.integers(1, 9),
)
def test_a_packed_column_is_a_list(values: list[int], block: int) -> None:
    """A column gives back its integers by index, in order and from any place on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "BLOCK", block)
        column = PackedInts()
        for value in values:
            column.add(value)
        assert len(column) == len(values)
        assert list(column) == values
        assert [column[k] for k in range(len(values))] == values
        assert list(column.since(len(values) // 2)) == values[len(values) // 2 :]
        assert [column[k] for k in reversed(range(len(values)))] == values[::-1]


@given(
    values=st.lists(st.integers(0, 50), max_size=100).map(sorted),
    block=st.integers(1, 9),
    sought=st.integers(-1, 51),
)
def test_rank_in_an_ascending_column(values: list[int], block: int, sought: int) -> None:
    """The rank of a value is how many of the integers are at most the value."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "BLOCK", block)
        column = PackedInts()
        for value in values:
            column.add(value)
        assert column.rank(sought) == sum(value <= sought for value in values)


@given(
    patterns=st.lists(st.binary(max_size=12).map(lambda b: b * 4), max_size=80),
    pack_at=st.integers(1, 200),
    known=st.integers(1, 20),
)
def test_a_pattern_is_read_back(patterns: list[bytes], pack_at: int, known: int) -> None:
    """Each pattern is read back by its number, whether packed, forgotten or still open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "PACK_AT", pack_at)
        patch.setattr(packed, "KNOWN_PATTERNS", known)
        store = PatternStore()
        numbers = [store.add(pattern) for pattern in patterns]
        reader = store.reader()
        read = [reader[number].tobytes() for number in numbers]
        assert read == patterns


def test_repeated_patterns_are_stored_once() -> None:
    """A loop of a few kinds of steps stores each of them once, however long it runs."""
    store = PatternStore()
    kinds = [array("i", [k] * 30).tobytes() for k in range(50)]
    numbers = {store.add(kinds[k * 7 % 50]) for k in range(10_000)}
    assert numbers == set(range(50))


def test_patterns_that_never_repeat_stay_small() -> None:
    """What never comes again is packed, and not looked for for ever."""
    store = PatternStore()
    for _ in range(3000):
        store.add(os.urandom(16) + bytes(400))
    assert len(store._index) <= packed.KNOWN_PATTERNS
    assert sum(map(len, store._packed)) < 3000 * 40
