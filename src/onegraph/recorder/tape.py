"""The append-only record of one thread: which expression made which sequence numbers.

While the user trains, every recorded call adds three small integers to a list. At each engine
call the list is sealed: a training loop repeats itself, so equal stretches are stored once and
100,000 steps cost little more than the first. Nothing here refers to a tensor.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from onegraph.recorder.packed import PackedInts, PatternReader
from onegraph.recorder.packed import PatternStore as PatternStore

# A stretch is sealed at the latest after this many integers, so a program that never calls
# backward is packed as it goes.
SEAL_AT = 150_000
# A call that encloses engine calls is noted that many stretches later at most.
NESTED_STRETCHES = 64
# So many stretches of at most so many integers are compared with as they are.
LATELY, LATELY_SIZE = 4, 10_000
# What is told of a number that no recorded call made.
UNSEEN = (-1, -1, -1)
# Decoded stretches kept while reading.
DECODED = 2048

# (begin, end, site): the numbers begin..end-1 came into being while the expression ran.
Interval = tuple[int, int, int]


class Stretch(NamedTuple):
    """A sealed list of entries, read; numbers count from its base.

    Args:
        begins, ends, sites: disjoint ascending intervals, inner calls cut out of outer ones.
        runs: for each interval the first one of its unbroken run of the same expression.
        made: the site of each call that made nodes, in the order they ended.
    """

    begins: list[int]
    ends: list[int]
    sites: list[int]
    runs: list[int]
    made: list[int]


class Tape:
    """One thread's record.

    ``entries`` holds (gap, length, site) triples: the call made the ``length`` numbers that
    follow ``last + gap``; a negative gap means it enclosed the calls noted before it. An engine
    call that began inside is noted by its own stretch, see `seal`.
    """

    __slots__ = (
        "base",
        "bases",
        "crowded",
        "entries",
        "epoch",
        "epochs",
        "first",
        "index",
        "last",
        "lately",
        "limit",
        "mode",
        "patterns",
        "paused_at",
        "paused_by",
        "store",
        "suspended",
    )

    def __init__(self, index: int, store: PatternStore, number: int, epoch: int) -> None:
        self.index = index
        self.store = store
        self.entries: list[int] = []
        # The first number that this thread gave out under our eyes, or may have.
        self.first = self.base = self.last = number
        self.epoch = epoch
        self.bases = PackedInts()
        self.epochs = PackedInts()
        self.patterns = PackedInts()
        # Patterns made lately, by their length.
        self.lately: dict[int, tuple[int, Sequence[int]]] = {}
        self.mode: Any = None
        # Whether other threads were recorded too, so that a number may mean several nodes.
        self.crowded = False
        # How many modes lay above ours when it was set aside, None while it is not.
        self.suspended: int | None = None
        self.paused_at = 0
        self.paused_by = 0
        self.limit = SEAL_AT

    def seal(self, epoch: int) -> None:
        """Close the current stretch; what follows was made after ``epoch`` engine calls began."""
        if self.entries:
            self.bases.add(self.base)
            self.epochs.add(self.epoch)
            self.patterns.add(self._pattern())
            # In place: the recording function holds on to the list.
            self.entries.clear()
        self.base = self.last
        self.epoch = epoch
        self.limit = SEAL_AT

    def _pattern(self) -> int:
        """The number of the pattern that the entries make: quickly, when it was made lately."""
        entries = self.entries
        pattern, known = self.lately.get(len(entries), (0, ()))
        if entries == known:
            return pattern
        pattern = self.store.add(array("i", entries).tobytes())
        if len(entries) <= LATELY_SIZE:
            if len(self.lately) >= LATELY:
                self.lately.clear()
            self.lately[len(entries)] = pattern, entries.copy()
        return pattern

    def content(self) -> bytes:
        """A digest that tapes have in common whose numbers were given in the same expressions."""
        digest = blake2b(array("q", [self.first, self.last, *self.bases]).tobytes())
        digest.update(array("q", self.patterns).tobytes())
        return digest.digest()

    def gave(self, number: int) -> bool:
        """Whether this thread gave the number to a node while it was recorded, seen or unseen."""
        return self.first <= number < self.last

    def locate(self, numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """(site, call, epoch) for each of the ascending ``numbers``; site -1 where unseen.

        Equal ``call`` values mean the same run of the same expression.
        """
        read = _Reader(self)
        count = len(self.bases)
        home = 0
        begin, epoch, stretch = read[0]
        leaves_at: float = self._begin(1) if count else float("inf")
        for number in numbers:
            if number >= leaves_at:
                # The last stretch that began at or before the number made it.
                home = count if number >= self.base else self.bases.rank(number) - 1
                begin, epoch, stretch = read[home]
                leaves_at = self._begin(home + 1) if home < count else float("inf")
            at = bisect_right(stretch.ends, number - begin)
            if at < len(stretch.ends):
                seen = stretch.begins[at] <= number - begin
                yield (stretch.sites[at], home << 24 | stretch.runs[at], epoch) if seen else UNSEEN
            else:
                yield self._enclosing(number, home, read)

    def _enclosing(self, number: int, home: int, read: _Reader) -> tuple[int, int, int]:
        """The call around engine calls that made a number which its own stretch does not hold."""
        for candidate in range(home + 1, min(home + NESTED_STRETCHES, len(self.bases)) + 1):
            begin, epoch, stretch = read[candidate]
            at = bisect_right(stretch.ends, number - begin)
            if at < len(stretch.ends) and stretch.begins[at] <= number - begin:
                return stretch.sites[at], candidate << 24 | stretch.runs[at], epoch
        return UNSEEN

    def runs(self, first_epoch: int) -> Iterator[tuple[int, int]]:
        """(site, epoch) of every call that made nodes since ``first_epoch``."""
        for _, epoch, stretch in self._since(first_epoch):
            for site in stretch.made:
                yield site, epoch

    def _since(self, first_epoch: int) -> Iterator[tuple[int, int, Stretch]]:
        read = _Reader(self)
        for number in range(self.epochs.rank(first_epoch - 1), len(self.bases) + 1):
            yield read[number]

    def _begin(self, stretch: int) -> int:
        return self.bases[stretch] if stretch < len(self.bases) else self.base


class _Reader:
    """Reads the stretches of a tape, each pattern once."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._patterns: PatternReader = tape.store.reader()
        self._known: dict[int, Stretch] = {}

    def __getitem__(self, number: int) -> tuple[int, int, Stretch]:
        """(base, epoch, stretch) of the sealed stretches, and after them of the open one."""
        tape = self._tape
        if number == len(tape.bases):
            pattern, base, epoch = -1, tape.base, tape.epoch
        else:
            pattern, base, epoch = tape.patterns[number], tape.bases[number], tape.epochs[number]
        stretch = self._known.get(pattern)
        if stretch is None:
            values = array("i", tape.entries) if pattern < 0 else self._patterns[pattern]
            if len(self._known) >= DECODED:
                self._known.clear()
            stretch = self._known[pattern] = _decode(values)
        return base, epoch, stretch


def _decode(values: array[int]) -> Stretch:
    last = 0
    intervals: list[Interval] = []
    for gap, length, site in zip(values[::3], values[1::3], values[2::3], strict=True):
        begin = last + gap
        last = begin + length
        intervals.append((begin, last, site))
    flat = _flatten(intervals)
    return Stretch(
        begins=[begin for begin, _, _ in flat],
        ends=[end for _, end, _ in flat],
        sites=[site for _, _, site in flat],
        runs=_runs(flat),
        made=[site for begin, end, site in intervals if end > begin],
    )


def _flatten(intervals: Iterable[Interval]) -> list[Interval]:
    """Turn nested intervals, each after what it encloses, into disjoint ascending ones."""
    flat: list[Interval] = []
    for begin, end, site in intervals:
        inner: list[Interval] = []
        while flat and flat[-1][0] >= begin:
            inner.append(flat.pop())
        # Calls nest; anything else means the counter was set back below us. Keep the older.
        position = max(begin, flat[-1][1]) if flat else begin
        for part in reversed(inner):
            if part[0] > position:
                flat.append((position, part[0], site))
            flat.append(part)
            position = part[1]
        if end > position:
            flat.append((position, end, site))
    return flat


def _runs(flat: list[Interval]) -> list[int]:
    runs: list[int] = []
    for at, (begin, _, site) in enumerate(flat):
        unbroken = at and flat[at - 1][1] == begin and flat[at - 1][2] == site
        runs.append(runs[-1] if unbroken else at)
    return runs
