"""Facts written early in a long document and asked for late, in a haystack of program text.

A segment is a row of tokens of the haystack, some of which are overwritten. The document begins
with its facts. A fact takes ``farthest + 1`` segments: the last holds a name and a kind of anchor,
and each of those before it holds an anchor, all of different kinds. It has two attributes: *where*,
the quarter of its segment in which the name stands, and *which*, how many segments back the anchor
of its kind is. Then come ``distance`` segments of haystack, and then the questions, a segment each:
a name, and the sign that asks. The answer is *who* (the name), where and which; it is right when
all three are.

What is asked for is position. A bag of a segment's tokens does not tell where a name stands, and a
bag of segments not which of them has the anchor; attention maps do. For *where*, nothing but a map
or an order of tokens will do. For *which*, a memory takes a step a segment, and could in principle
keep each anchor with its age; the map over segments has only to match a segment with its like.

Two other designs were given up. In the first, a question asked for one attribute, the name was no
part of the answer, and nothing was answered before the questions: in 16,000 documents the
hierarchical model learned to remember the facts, but not which name each of them belongs to. In
the second, one segment alone before a fact had an anchor, of the only kind: the memory learned to
count the segments since, and the model did without the map over segments.
"""

from __future__ import annotations

import re
import sysconfig
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

# The modules whose sources are the haystack; all are old, large and in every installation.
SOURCES = ("argparse", "ast", "inspect", "pathlib", "tarfile", "typing", "subprocess", "datetime")
WORD = re.compile(r"\w+|[^\w\s]")
QUARTERS = 4


class NeedleBatch(NamedTuple):
    """Documents, and what must be answered.

    Args:
        tokens: (S, B, L) of int64.
        targets: (S, B, 3) of int64: who, where, and which, each from 0 (which: for one segment
            back); all 0 where neither mask is true.
        told: (S, B) of bool, true for the segments that hold a fact. That they are to be answered
            at once gives training something to begin with; an accuracy does not count them.
        asked: (S, B) of bool, true for the segments that hold a question.
    """

    tokens: Tensor
    targets: Tensor
    told: Tensor
    asked: Tensor


@dataclass(frozen=True)
class Needle:
    """Documents with facts, a stretch without any, and questions.

    Args:
        distance: how many segments lie between the last fact and the first question.
        nearest: when given, each batch draws its own distance, from this one to `distance`.
        facts: how many a document holds, of different names.
        questions: how many it ends with, each about any of the facts.
        length: L, tokens a segment; a multiple of four.
        farthest: how many segments back an anchor may be, and how many kinds of it there are.
        names: how many names there are.
        words: how many different tokens the haystack has; words share them by a hash.
    """

    distance: int = 8
    nearest: int | None = None
    facts: int = 3
    questions: int = 4
    length: int = 4
    farthest: int = 2
    names: int = 6
    words: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.facts <= self.names:
            raise ValueError(f"{self.facts} facts cannot have different ones of {self.names} names")
        if self.length < QUARTERS or self.length % QUARTERS:
            raise ValueError(f"length is {self.length}; it must be a multiple of {QUARTERS}")
        if not 0 <= (self.distance if self.nearest is None else self.nearest) <= self.distance:
            raise ValueError(f"no distance lies between {self.nearest} and {self.distance}")

    @property
    def vocabulary(self) -> int:
        """The haystack's tokens, then the kinds of anchor, the sign that asks, and the names."""
        return self.words + self.farthest + 1 + self.names

    @property
    def answers(self) -> tuple[int, int, int]:
        """How many names, quarters and numbers of segments there are to choose from."""
        return self.names, QUARTERS, self.farthest

    @property
    def classes(self) -> int:
        """How many logits an answer takes: those of `answers` beside each other."""
        return sum(self.answers)

    def draw(self, batch: int, generator: Generator) -> NeedleBatch:
        """A batch; equal seeds give equal batches, on Pythons with the same library."""
        distance, block = self.distance, self.farthest + 1
        if self.nearest is not None:
            span = (self.nearest, self.distance + 1)
            distance = int(torch.randint(*span, (1,), generator=generator))
        asked = self.facts * block + distance
        tokens = self._draw_haystack(asked + self.questions, batch, generator)
        first = self.words + self.farthest + 1
        samples = torch.arange(batch)
        name = self._shuffle((batch, self.names), generator)[:, : self.facts].t()
        back = 1 + self._draw(self.farthest, (self.facts, batch), generator)
        # Which kind of anchor stands 1, 2, ... segments back.
        kinds = self._shuffle((self.facts, batch, self.farthest), generator)
        kind = kinds.gather(-1, back.unsqueeze(-1) - 1).squeeze(-1)
        spots = self._shuffle((self.facts, batch, self.length), generator)
        place = spots[..., 0]
        stands = (torch.arange(self.facts) * block + self.farthest).unsqueeze(1)
        tokens[stands, samples, place] = first + name
        tokens[stands, samples, spots[..., 1]] = self.words + kind
        for steps, anchor in enumerate(kinds.unbind(-1), 1):
            spot = self._draw(self.length, (self.facts, batch), generator)
            tokens[stands - steps, samples, spot] = self.words + anchor
        about = self._draw(self.facts, (self.questions, batch), generator)
        spots = self._shuffle((self.questions, batch, self.length), generator)
        segments = asked + torch.arange(self.questions).unsqueeze(1)
        tokens[segments, samples, spots[..., 0]] = first + name.gather(0, about)
        tokens[segments, samples, spots[..., 1]] = first - 1
        facts = torch.stack((name, place * QUARTERS // self.length, back - 1), -1)
        targets = torch.zeros(len(tokens), batch, 3, dtype=torch.long)
        targets[stands, samples] = facts
        targets[segments, samples] = facts[about, samples]
        told, ask = torch.zeros(2, len(tokens), batch, dtype=torch.bool).unbind()
        told[stands], ask[segments] = True, True
        return NeedleBatch(tokens, targets, told, ask)

    def loss(self, logits: Tensor, batch: NeedleBatch) -> Tensor:
        """Nats an answer, of the late questions and, as a second term, of the facts as told.

        What is in no segment of the batch, which may be a window of a document, adds nothing.

        Args:
            logits: (S, B, `classes`).
        """
        total = logits.new_zeros(())
        for mask in (batch.asked, batch.told):
            if not mask.any():
                continue
            for answers, targets in zip(
                logits[mask].split(self.answers, -1), batch.targets[mask].unbind(-1), strict=True
            ):
                total = total + F.cross_entropy(answers, targets)
        return total

    def right(self, logits: Tensor, batch: NeedleBatch) -> Tensor:
        """For each late question whether who, where and which are right, (n, 3) of bool."""
        parts = logits[batch.asked].split(self.answers, -1)
        answers = torch.stack([part.argmax(-1) for part in parts], -1)
        return answers == batch.targets[batch.asked]

    def accuracy(self, logits: Tensor, batch: NeedleBatch) -> float:
        """The share of late questions whose answer is right in all parts."""
        return float(self.right(logits, batch).all(-1).double().mean())

    def _draw_haystack(self, segments: int, batch: int, generator: Generator) -> Tensor:
        """For each sample a stretch of the text from anywhere, (segments, batch, L)."""
        text = haystack(self.words)
        size = segments * self.length
        begin = self._draw(len(text) - size, (batch, 1), generator)
        stretch = text[begin + torch.arange(size)]
        return stretch.view(batch, segments, self.length).transpose(0, 1).contiguous()

    @staticmethod
    def _draw(count: int, size: tuple[int, ...], generator: Generator) -> Tensor:
        return torch.randint(count, size, generator=generator)

    @staticmethod
    def _shuffle(size: tuple[int, ...], generator: Generator) -> Tensor:
        """Permutations of the last dimension."""
        return torch.rand(size, generator=generator).argsort(-1)


@lru_cache
def haystack(words: int) -> Tensor:
    """Sources of the standard library as tokens below ``words``, by a hash of each word or sign."""
    library = Path(sysconfig.get_path("stdlib"))
    found = [library / f"{name}.py" for name in SOURCES]
    texts = [path.read_text(encoding="utf-8") for path in found if path.exists()]
    return torch.tensor(
        [zlib.crc32(word.encode()) % words for text in texts for word in WORD.findall(text)]
    )
