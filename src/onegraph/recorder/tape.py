"""The append-only record of one thread: which expression made which sequence numbers.

While the user trains, every recorded call adds three small integers to a list. At each engine
call the list is sealed: a training loop repeats itself, so equal stretches are stored once and
100,000 steps cost little more than the first. Nothing here refers to a tensor.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# A stretch is sealed at the latest after this many integers, so a program that never calls
# backward is packed as it goes.
SEAL_AT = 150_000
# Stretches that differ are packed together once they reach this many bytes.
PACK_AT = 1 << 20
# A call that encloses engine calls is noted that many stretches later at most.
NESTED_STRETCHES = 64


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers ``[begin, end)`` came into being while the expression ``site`` ran.

    An in-place write that made no number is noted at ``begin`` with ``end = begin - target``.
    """

    begin: int
    end: int
    site: int
    epoch: int


class PatternStore:
    """Byte strings stored once each; the rare ones packed together."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._where: list[tuple[int, int, int]] = []
        self._packed: list[bytes] = []
        self._open: list[bytes] = []
        self._open_size = 0

    def add(self, pattern: bytes) -> int:
        """Return the pattern's number, storing it when it is new."""
        # A long pattern is known by its digest: keeping it as a key would undo the packing.
        key = pattern if len(pattern) <= 16 else _digest(pattern)
        found = self._index.get(key)
        if found is not None:
            return found
        number = len(self._where)
        self._index[key] = number
        self._where.append((len(self._packed), self._open_size, len(pattern)))
        self._open.append(pattern)
        self._open_size += len(pattern)
        if self._open_size >= PACK_AT:
            self._packed.append(zlib.compress(b"".join(self._open), 6))
            self._open, self._open_size = [], 0
        return number

    def reader(self) -> PatternReader:
        """A reader over what is stored now."""
        return PatternReader(self._where, self._packed, b"".join(self._open))


class PatternReader:
    """Reads patterns back, unpacking each block once in a row."""

    def __init__(
        self, where: list[tuple[int, int, int]], packed: list[bytes], last: bytes
    ) -> None:
        self._where, self._packed, self._last = where, packed, last
        self._block = -1
        self._bytes = b""
        self._values: dict[int, array[int]] = {}

    def __getitem__(self, number: int) -> array[int]:
        known = self._values.get(number)
        if known is not None:
            return known
        block, offset, length = self._where[number]
        if block != self._block:
            self._block = block
            self._bytes = (
                zlib.decompress(self._packed[block]) if block < len(self._packed) else self._last
            )
        values = array("i")
        values.frombytes(self._bytes[offset : offset + length])
        if len(self._values) < 4096:
            self._values[number] = values
        return values


def _digest(pattern: bytes) -> bytes:
    from hashlib import blake2b

    return blake2b(pattern, digest_size=16).digest()


class Tape:
    """One thread's record.

    ``entries`` holds (gap, length, site) triples: the call made the ``length`` numbers that
    follow ``last + gap``; a negative gap means it enclosed the calls noted before it. An engine
    call that began inside is noted by its own stretch, see `seal`.
    """

    __slots__ = (
        "base",
        "bases",
        "entries",
        "epoch",
        "epochs",
        "index",
        "last",
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
        self.base = self.last = number
        self.epoch = epoch
        self.bases = array("q")
        self.epochs = array("i")
        self.patterns = array("i")
        self.mode: Any = None
        # How many modes lay above ours when it was set aside, None while it is not.
        self.suspended: int | None = None
        self.paused_at = 0
        self.paused_by = 0
        self.limit = SEAL_AT

    def seal(self, epoch: int) -> None:
        """Close the current stretch; what follows was made after ``epoch`` engine calls began."""
        if self.entries:
            self.bases.append(self.base)
            self.epochs.append(self.epoch)
            self.patterns.append(self.store.add(array("i", self.entries).tobytes()))
            # In place: the recording function holds on to the list.
            self.entries.clear()
        self.base = self.last
        self.epoch = epoch
        self.limit = SEAL_AT

    def locate(self, numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """(site, call, epoch) for each of the ascending ``numbers``; site -1 where unseen.

        Equal ``call`` values mean the same run of the same expression.
        """
        reader = self.store.reader()
        chunks = len(self.bases)
        cached, flat, ends = -1, [], []
        first = 0
        for number in numbers:
            # The last stretch that began at or before the number made it.
            first = bisect_right(self.bases, number, first) if chunks else 0
            chunk = max(first - 1, 0)
            if number >= self.base:
                chunk = chunks
            found = (-1, -1, -1)
            for candidate in range(chunk, min(chunk + NESTED_STRETCHES, chunks) + 1):
                if candidate != cached:
                    cached = candidate
                    flat = self._flat(candidate, reader)
                    ends = [interval.end for interval in flat]
                at = bisect_right(ends, number)
                if at < len(flat) and flat[at].begin <= number:
                    interval = flat[at]
                    run = at
                    while run and flat[run - 1].site == interval.site:
                        run -= 1
                        if flat[run].end != flat[run + 1].begin:
                            run += 1
                            break
                    found = (interval.site, candidate << 24 | run, interval.epoch)
                    break
                if candidate == chunk and flat and number < flat[-1].end:
                    break
            first = max(first - 1, 0)
            yield found

    def _flat(self, chunk: int, reader: PatternReader) -> list[Interval]:
        return list(_flatten(self._stretch(chunk, reader)))

    def _stretch(self, chunk: int, reader: PatternReader) -> Iterator[Interval]:
        if chunk == len(self.bases):
            return _decode(self.base, array("i", self.entries), self.epoch)
        return _decode(self.bases[chunk], reader[self.patterns[chunk]], self.epochs[chunk])

    def writes(self, first_epoch: int) -> Iterator[tuple[int, int, int]]:
        """(target, site, epoch) of the in-place writes noted since ``first_epoch``."""
        reader = self.store.reader()
        start = bisect_left(self.epochs, first_epoch)
        for chunk in range(start, len(self.bases) + 1):
            for interval in self._stretch(chunk, reader):
                if interval.end < interval.begin:
                    yield interval.begin - interval.end, interval.site, interval.epoch

    def runs(self, first_epoch: int) -> Iterator[tuple[int, int]]:
        """(site, epoch) of every call that made nodes since ``first_epoch``."""
        reader = self.store.reader()
        start = bisect_left(self.epochs, first_epoch)
        for chunk in range(start, len(self.bases) + 1):
            for interval in self._stretch(chunk, reader):
                if interval.end > interval.begin:
                    yield interval.site, interval.epoch


def _flatten(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """Turn nested intervals, each after what it encloses, into disjoint ascending ones."""
    flat: list[Interval] = []
    for interval in intervals:
        if interval.end < interval.begin:
            continue
        inner: list[Interval] = []
        while flat and flat[-1].begin >= interval.begin:
            inner.append(flat.pop())
        if flat and flat[-1].end > interval.begin:
            # Calls nest; anything else means the counter was set back below us. Keep the older.
            interval = Interval(flat[-1].end, interval.end, interval.site, interval.epoch)
        position = interval.begin
        for part in reversed(inner):
            if part.begin > position:
                flat.append(Interval(position, part.begin, interval.site, interval.epoch))
            flat.append(part)
            position = part.end
        if interval.end > position:
            flat.append(Interval(position, interval.end, interval.site, interval.epoch))
    yield from flat


def _decode(base: int, values: array[int], epoch: int) -> Iterator[Interval]:
    last = base
    for k in range(0, len(values) - 2, 3):
        begin = last + values[k]
        end = begin + values[k + 1]
        yield Interval(begin, end, values[k + 2], epoch)
        if end >= begin:
            last = end
