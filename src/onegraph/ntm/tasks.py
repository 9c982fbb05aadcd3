"""The five tasks of the 2014 paper: seeded, batched generators with bit-exact targets.

Graves, Wayne and Danihelka, "Neural Turing Machines" (arXiv:1410.5401), section 4. A task is a
value that holds its options; `draw` makes a batch of it from a generator alone, so equal seeds
give equal batches. Sequences of one batch may differ in length: they begin together, and after
its last target step a sequence is all zeros and no longer masked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional as F


class Batch(NamedTuple):
    """What a model is shown, and what it must answer.

    Args:
        inputs: (T, B, Din), float.
        targets: (T, B, Dout), float, each entry 0 or 1, and 0 where the mask is false.
        mask: (T, B), true where the answer counts.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class Task(Protocol):
    """What can be trained on: sizes, and batches."""

    @property
    def input_size(self) -> int:
        """Din."""

    @property
    def output_size(self) -> int:
        """Dout."""

    def draw(self, batch: int, generator: Generator) -> Batch:
        """A batch; two generators of one seed give the same."""


@dataclass(frozen=True)
class Copy:
    """Section 4.1: random vectors, a delimiter on a channel of its own, then the same vectors.

    Args:
        bits: the width of a vector.
        shortest, longest: the bounds of the sequences' lengths, both included.
        mixed: whether each sequence of a batch has its own length; else one is drawn a batch.
    """

    bits: int = 8
    shortest: int = 1
    longest: int = 20
    mixed: bool = False

    @property
    def input_size(self) -> int:
        """The bits, and the delimiter."""
        return self.bits + 1

    @property
    def output_size(self) -> int:
        """The bits."""
        return self.bits

    def draw(self, batch: int, generator: Generator) -> Batch:
        """A batch; T is twice the longest length, and 1."""
        _require_at_least(1, bits=self.bits)
        lengths = _draw_numbers(batch, self.shortest, self.longest, self.mixed, generator)
        longest = int(lengths.max())
        vectors = _draw_bits((longest, batch, self.bits), generator)
        time = torch.arange(2 * longest + 1).unsqueeze(1)
        shown, source = time < lengths, time - lengths - 1
        mask = (source >= 0) & (source < lengths)
        inputs = torch.zeros(len(time), batch, self.input_size)
        inputs[..., : self.bits] = _pick(vectors, time, shown)
        inputs[..., self.bits] = (time == lengths).float()
        return Batch(inputs, _pick(vectors, source, mask), mask)


@dataclass(frozen=True)
class RepeatCopy:
    """Section 4.2: random vectors, how often to repeat them, the repetitions, then an end marker.

    The number of repeats stands, at one step, on a channel of its own, scaled to mean 0 and
    variance 1 over 1 to `scale` repeats; a delimiter on another channel stands with it, so that
    no number looks like none.

    Args:
        bits, shortest, longest: as for `Copy`.
        fewest, most: the bounds of the repeats, both included.
        scale: the largest number of the training range; leave it when more are asked for later.
        mixed: whether each sequence has its own length and repeats; else one pair is drawn a batch.
    """

    bits: int = 8
    shortest: int = 1
    longest: int = 10
    fewest: int = 1
    most: int = 10
    scale: int = 10
    mixed: bool = False

    @property
    def input_size(self) -> int:
        """The bits, the delimiter, and the number of repeats."""
        return self.bits + 2

    @property
    def output_size(self) -> int:
        """The bits, and the end marker."""
        return self.bits + 1

    def draw(self, batch: int, generator: Generator) -> Batch:
        """A batch; a sequence of length L with R repeats takes L · (R + 1) + 2 steps."""
        _require_at_least(1, bits=self.bits, scale=self.scale)
        lengths = _draw_numbers(batch, self.shortest, self.longest, self.mixed, generator)
        repeats = _draw_numbers(batch, self.fewest, self.most, self.mixed, generator)
        vectors = _draw_bits((int(lengths.max()), batch, self.bits), generator)
        ends = lengths * (repeats + 1) + 1
        time = torch.arange(int(ends.max()) + 1).unsqueeze(1)
        asked = time == lengths
        copied = (time > lengths) & (time < ends)
        inputs = torch.zeros(len(time), batch, self.input_size)
        inputs[..., : self.bits] = _pick(vectors, time, time < lengths)
        inputs[..., self.bits] = asked.float()
        spread = math.sqrt((self.scale**2 - 1) / 12) or 1.0
        inputs[..., self.bits + 1] = asked * ((repeats - (self.scale + 1) / 2) / spread)
        targets = torch.zeros(len(time), batch, self.output_size)
        targets[..., : self.bits] = _pick(vectors, (time - lengths - 1) % lengths, copied)
        targets[..., self.bits] = (time == ends).float()
        return Batch(inputs, targets, copied | (time == ends))


@dataclass(frozen=True)
class AssociativeRecall:
    """Section 4.3: a list of items, then one of them; the answer is the item that followed it.

    A delimiter stands before each item, another kind of delimiter on both sides of the query.

    Args:
        bits: the width of a vector.
        vectors: how many vectors make an item.
        fewest, most: the bounds of the number of items, both included; at least 2.
        mixed: whether each sequence has its own number of items; else one is drawn a batch.
    """

    bits: int = 6
    vectors: int = 3
    fewest: int = 2
    most: int = 6
    mixed: bool = False

    @property
    def input_size(self) -> int:
        """The bits, and the two delimiters."""
        return self.bits + 2

    @property
    def output_size(self) -> int:
        """The bits."""
        return self.bits

    def draw(self, batch: int, generator: Generator) -> Batch:
        """A batch; n items of v vectors take n · (v + 1) + 2 · v + 2 steps."""
        if self.fewest < 2:
            raise ValueError(f"fewest is {self.fewest}; a query needs an item that follows it")
        _require_at_least(1, bits=self.bits, vectors=self.vectors)
        size = self.vectors
        counts = _draw_numbers(batch, self.fewest, self.most, self.mixed, generator)
        items = _draw_bits((int(counts.max()) * size, batch, self.bits), generator)
        draws = torch.rand(batch, generator=generator)
        queries = (draws * (counts - 1)).long().clamp(max=counts - 2)
        listed = counts * (size + 1)
        time = torch.arange(int(listed.max()) + 2 * size + 2).unsqueeze(1)
        item, place = time // (size + 1), time % (size + 1) - 1
        since = time - listed
        queried = (since >= 1) & (since <= size)
        mask = (since >= size + 2) & (since < 2 * size + 2)
        inputs = torch.zeros(len(time), batch, self.input_size)
        shown = _pick(items, item * size + place, (since < 0) & (place >= 0))
        query = _pick(items, queries * size + since - 1, queried)
        inputs[..., : self.bits] = shown + query
        inputs[..., self.bits] = ((since < 0) & (place < 0)).float()
        inputs[..., self.bits + 1] = ((since == 0) | (since == size + 1)).float()
        targets = _pick(items, (queries + 1) * size + since - size - 2, mask)
        return Batch(inputs, targets, mask)


@dataclass(frozen=True)
class NGrams:
    """Section 4.4: each bit of a sequence depends on the bits before it, by a table drawn anew.

    At each step the model sees a bit and must give the probability that the next one is 1. What
    can be reached is known: see `bayes_bits`.

    Args:
        order: n of the n-gram: the n - 1 bits before a bit decide its probability, and the first
            n - 1 bits, drawn fair, are not scored.
        length: how many bits a sequence has.
    """

    order: int = 6
    length: int = 200

    @property
    def input_size(self) -> int:
        """The bit."""
        return 1

    @property
    def output_size(self) -> int:
        """The next bit."""
        return 1

    def draw(self, batch: int, generator: Generator) -> Batch:
        """A batch of length - 1 steps; each sequence has its own table, drawn from Beta(½, ½)."""
        _require_at_least(1, order=self.order)
        # The first order - 1 bits are not scored, and neither is the very first, never a target.
        _require_at_least(max(self.order, 2), length=self.length)
        context = self.order - 1
        # sin²(πU/2) is Beta(½, ½) for a uniform U.
        uniform = torch.rand(batch, 2**context, generator=generator)
        table = (uniform * (math.pi / 2)).sin().square()
        draws = torch.rand(self.length, batch, generator=generator)
        # A bit at a time: plain numbers are faster here than tensors of one number a sample.
        sequences = []
        for chances, drawn in zip(table.tolist(), draws.t().tolist(), strict=True):
            row, found = 0, []
            for t, draw in enumerate(drawn):
                found.append(draw < (chances[row] if t >= context else 0.5))
                row = (2 * row + found[-1]) % 2**context
            sequences.append(found)
        bits = torch.tensor(sequences, dtype=torch.float32).reshape(batch, self.length).t()
        mask = (torch.arange(1, self.length) >= context).unsqueeze(1).expand(-1, batch)
        targets = bits[1:] * mask
        return Batch(bits[:-1].unsqueeze(-1).contiguous(), targets.unsqueeze(-1), mask)

    def bayes_bits(self, batch: Batch) -> Tensor:
        """The cost in bits of each sequence (B,), for the estimator that no other can beat.

        It says (N1 + ½) / (N0 + N1 + 1) of a bit whose context was followed N1 times by a 1 and
        N0 times by a 0 (equation 10 of the paper, after Murphy 2012).
        """
        bits = batch.inputs[..., 0].long()
        context, size = self.order - 1, bits.shape[1]
        counts = torch.full((size, 2**context, 2), 0.5, dtype=torch.float64)
        cost = torch.zeros(size, dtype=torch.float64)
        row, samples = torch.zeros(size, dtype=torch.long), torch.arange(size)
        for t in range(len(bits)):
            row = (2 * row + bits[t]) % 2**context
            if t + 1 >= context:
                following = batch.targets[t, :, 0].long()
                seen = counts[samples, row]
                cost -= (seen[samples, following] / seen.sum(1)).log2()
                counts[samples, row, following] += 1
        return cost


@dataclass(frozen=True)
class PrioritySort:
    """Section 4.5: vectors with priorities, then those of highest priority, highest first.

    Args:
        bits: the width of a vector.
        shown: how many vectors are shown, each with a priority drawn from [-1, 1).
        asked: how many are asked for.
    """

    bits: int = 8
    shown: int = 20
    asked: int = 16

    @property
    def input_size(self) -> int:
        """The bits, the priority, and the delimiter."""
        return self.bits + 2

    @property
    def output_size(self) -> int:
        """The bits."""
        return self.bits

    def draw(self, batch: int, generator: Generator) -> Batch:
        """A batch; T = shown + 1 + asked."""
        if not 0 < self.asked <= self.shown:
            raise ValueError(f"{self.asked} of {self.shown} vectors cannot be asked for")
        _require_at_least(1, bits=self.bits)
        vectors = _draw_bits((self.shown, batch, self.bits), generator)
        priorities = 2 * torch.rand(self.shown, batch, generator=generator) - 1
        order = priorities.argsort(dim=0, descending=True, stable=True)[: self.asked]
        steps = self.shown + 1 + self.asked
        inputs = torch.zeros(steps, batch, self.input_size)
        inputs[: self.shown, :, : self.bits] = vectors
        inputs[: self.shown, :, self.bits] = priorities
        inputs[self.shown, :, self.bits + 1] = 1
        targets = torch.zeros(steps, batch, self.bits)
        targets[self.shown + 1 :] = vectors.gather(0, order.unsqueeze(-1).expand(-1, -1, self.bits))
        mask = (torch.arange(steps) > self.shown).unsqueeze(1).expand(-1, batch)
        return Batch(inputs, targets, mask)


TASKS: dict[str, type[Copy | RepeatCopy | AssociativeRecall | NGrams | PrioritySort]] = {
    "copy": Copy,
    "repeat-copy": RepeatCopy,
    "associative-recall": AssociativeRecall,
    "ngrams": NGrams,
    "priority-sort": PrioritySort,
}


def loss(logits: Tensor, batch: Batch) -> Tensor:
    """Bits per sequence: the binary cross-entropy of all that counts, to base 2, over B.

    Args:
        logits: (T, B, Dout), as a model gives them, before any sigmoid.

    Returns:
        A scalar, to be minimised.
    """
    # Before the costs, not after: what is masked may hold anything, and its gradient is zero.
    silent = ~batch.mask.unsqueeze(-1)
    logits = logits.masked_fill(silent, 0)
    costs = F.binary_cross_entropy_with_logits(logits, batch.targets, reduction="none")
    return costs.masked_fill(silent, 0).sum() / (batch.mask.shape[1] * math.log(2))


def bit_errors(logits: Tensor, batch: Batch) -> Tensor:
    """How many bits of each sequence (B,) come out wrong when logits are rounded to bits."""
    wrong = (logits > 0) != (batch.targets > 0.5)
    return (wrong & batch.mask.unsqueeze(-1)).sum((0, 2))


def _require_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")


def _draw_numbers(batch: int, least: int, most: int, mixed: bool, generator: Generator) -> Tensor:
    """Whole numbers (batch,) from least to most; all the same unless mixed."""
    if not 1 <= least <= most:
        raise ValueError(f"no number lies between {least} and {most}, with 1 the least allowed")
    drawn = torch.randint(least, most + 1, (batch if mixed else 1,), generator=generator)
    return drawn.expand(batch)


def _draw_bits(size: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.randint(0, 2, size, generator=generator).float()


def _pick(rows: Tensor, index: Tensor, chosen: Tensor) -> Tensor:
    """``rows[index[t, b], b]`` where chosen (T, B), zeros elsewhere.

    Args:
        rows: (L, B, D).
        index: (T, B) or (T, 1); what it holds where nothing is chosen does not matter.
    """
    index = index.expand(chosen.shape).clamp(0, len(rows) - 1)
    picked = rows.gather(0, index.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))
    return picked * chosen.unsqueeze(-1)
