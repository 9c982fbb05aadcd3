"""Compact stores for what a long training run repeats: columns of integers and byte patterns.

Both are appended to while the user trains and read only when something is to be explained.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from hashlib import blake2b
from itertools import accumulate
from operator import sub

# A column is packed after this many integers.
BLOCK = 4096
# Patterns are packed together once they reach this many bytes.
PACK_AT = 1 << 19
# So many patterns are looked for when one is added. A program with more of them hardly repeats
# itself, and packing makes up for what is then stored twice.
KNOWN_PATTERNS = 8192


class PackedInts:
    """A column of integers below 2**61 either way. Full blocks are kept as packed differences.

    The column of a regular training loop takes some hundredths of a byte an entry.
    """

    __slots__ = ("_blocks", "_firsts", "_read", "_tail")

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._firsts = array("q")
        self._tail: array[int] = array("q")
        self._read: tuple[int, array[int]] = (-1, self._tail)

    def add(self, value: int) -> None:
        """Append an integer."""
        tail = self._tail
        tail.append(value)
        if len(tail) >= BLOCK:
            differences = array("q", map(sub, tail[1:], tail))
            self._blocks.append(zlib.compress(differences.tobytes(), 1))
            self._firsts.append(tail[0])
            self._tail = array("q")

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._tail)

    def __getitem__(self, index: int) -> int:
        return self._block(index // BLOCK)[index % BLOCK]

    def __iter__(self) -> Iterator[int]:
        return self.since(0)

    def since(self, index: int) -> Iterator[int]:
        """The integers from ``index`` on."""
        for number in range(index // BLOCK, len(self._blocks) + 1):
            block = self._block(number)
            yield from block[index % BLOCK :] if number == index // BLOCK else block

    def rank(self, value: int) -> int:
        """How many integers of an ascending column are at most ``value``."""
        number = bisect_right(self._firsts, value)
        if number < len(self._blocks) or not self._tail or self._tail[0] > value:
            number -= 1
        if number < 0:
            return 0
        return number * BLOCK + bisect_right(self._block(number), value)

    def _block(self, number: int) -> array[int]:
        if number == len(self._blocks):
            return self._tail
        known, values = self._read
        if known != number:
            differences = array("q")
            differences.frombytes(zlib.decompress(self._blocks[number]))
            values = array("q", accumulate(differences, initial=self._firsts[number]))
            self._read = (number, values)
        return values


class PatternStore:
    """Byte strings with numbers in the order they came; most of the equal ones stored once."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._packed: list[bytes] = []
        # The number of each packed block's first pattern, and of the first that is still open.
        self._firsts = array("q", [0])
        self._open: list[bytes] = []
        self._open_size = 0
        self._reader: PatternReader | None = None

    def add(self, pattern: bytes) -> int:
        """Return the pattern's number, storing it when it is not known."""
        # A long pattern is known by its digest: keeping it as a key would undo the packing.
        key = pattern if len(pattern) <= 16 else blake2b(pattern, digest_size=16).digest()
        found = self._index.get(key)
        if found is not None:
            return found
        if len(self._index) >= KNOWN_PATTERNS:
            self._index.clear()
        self._reader = None
        number = self._firsts[-1] + len(self._open)
        self._index[key] = number
        self._open.append(pattern)
        self._open_size += len(pattern)
        if self._open_size >= PACK_AT:
            self._packed.append(_pack(self._open))
            self._firsts.append(number + 1)
            self._open, self._open_size = [], 0
        return number

    def reader(self) -> PatternReader:
        """A reader over what is stored now."""
        if self._reader is None:
            self._reader = PatternReader(self._firsts, [*self._packed, _pack(self._open)])
        return self._reader


class PatternReader:
    """Reads patterns back as arrays, unpacking each block once in a row."""

    def __init__(self, firsts: array[int], blocks: list[bytes]) -> None:
        self._firsts, self._blocks = firsts, blocks
        self._block = -1
        self._ends: list[int] = []
        self._bytes = b""
        self._values: dict[int, array[int]] = {}

    def __getitem__(self, number: int) -> array[int]:
        known = self._values.get(number)
        if known is not None:
            return known
        block = bisect_right(self._firsts, number) - 1
        if block != self._block:
            self._block = block
            self._ends, self._bytes = _unpack(self._blocks[block])
        place = number - self._firsts[block]
        values = array("i")
        values.frombytes(self._bytes[self._ends[place] : self._ends[place + 1]])
        if len(self._values) < KNOWN_PATTERNS:
            self._values[number] = values
        return values


def _pack(patterns: list[bytes]) -> bytes:
    lengths = array("q", [len(patterns), *map(len, patterns)])
    return zlib.compress(lengths.tobytes() + b"".join(patterns), 6)


def _unpack(block: bytes) -> tuple[list[int], bytes]:
    """Where the patterns of a block end, nought first, and their bytes."""
    data = zlib.decompress(block)
    (count,) = array("q", data[:8])
    lengths = array("q", data[8 : 8 * count + 8])
    return list(accumulate(lengths, initial=0)), data[8 * count + 8 :]
