"""The training steps that recording is measured on, and the surroundings they can run in."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import onegraph

Step = Callable[[], Any]
FRAMES = 100


# -- programs: each builds a model and returns one training step ----------------------------------


class _CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32 * 7 * 7, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(images))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.second(x)), 2)
        return self.head(x.flatten(1))


def cnn() -> Step:
    """A batch of 32 digits of 28x28 through two convolutions and a linear layer, with SGD."""
    model = _CNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        packed = self.project(self.before_attention(x))
        q, k, v = packed.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class _Transformer(nn.Module):
    def __init__(self, vocabulary: int = 256, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(_Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def transformer() -> Step:
    """A decoder of 4 layers, width 128, on 8 sequences of 64 tokens, with AdamW."""
    model = _Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(256, (8, 65))

    def step() -> None:
        optimizer.zero_grad()
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


class _MemoryCell(nn.Module):
    """One step of a small neural Turing machine: address, read, erase, add."""

    def __init__(self, width: int, slots: int, word: int) -> None:
        super().__init__()
        self.word = word
        self.controller = nn.LSTMCell(width + word, 64)
        self.emit = nn.Linear(64, 3 * word + 2)
        self.out = nn.Linear(64 + word, width)

    def forward(self, x: torch.Tensor, state: tuple[Any, ...]) -> tuple[Any, ...]:
        memory, read, weights, hidden, cell = state
        hidden, cell = self.controller(torch.cat([x, read], dim=1), (hidden, cell))
        key, erase, add, strength, gate = self.emit(hidden).split(
            [self.word, self.word, self.word, 1, 1], dim=1
        )
        norms = memory.norm(dim=2) * key.norm(dim=1, keepdim=True) + 1e-6
        similar = (memory @ key.unsqueeze(2)).squeeze(2) / norms
        focus = torch.softmax(nn.functional.softplus(strength) * similar, dim=1)
        gate = torch.sigmoid(gate)
        weights = gate * focus + (1 - gate) * weights
        erased = 1 - weights.unsqueeze(2) * torch.sigmoid(erase).unsqueeze(1)
        memory = memory * erased + weights.unsqueeze(2) * torch.tanh(add).unsqueeze(1)
        read = (weights.unsqueeze(1) @ memory).squeeze(1)
        return self.out(torch.cat([hidden, read], dim=1)), (memory, read, weights, hidden, cell)


def ntm() -> Step:
    """A neural Turing machine on 12 time steps of a copy task: some 600 tiny operations."""
    width, slots, word, batch, length = 8, 16, 12, 4, 12
    cell = _MemoryCell(width, slots, word)
    optimizer = torch.optim.RMSprop(cell.parameters(), lr=1e-4)
    inputs = torch.rand(length, batch, width).round()

    def step() -> None:
        optimizer.zero_grad()
        state = (
            torch.full((batch, slots, word), 1e-2),
            torch.zeros(batch, word),
            torch.full((batch, slots), 1 / slots),
            torch.zeros(batch, 64),
            torch.zeros(batch, 64),
        )
        loss = torch.zeros(())
        for x in inputs:
            guess, state = cell(x, state)
            loss = loss + nn.functional.binary_cross_entropy_with_logits(guess, x)
        loss.backward()
        optimizer.step()

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {"cnn": cnn, "transformer": transformer, "ntm": ntm}


# -- surroundings: what watches the step, and how deep in the stack it runs -----------------------


class _Empty(TorchFunctionMode):
    """A mode that does nothing: what any recording by a mode costs at least."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _installed() -> Any:
    from onegraph import api

    onegraph.install()
    try:
        yield
    finally:
        # Nothing public undoes `install`; paired runs in one process need it.
        api._INSTALLED.end()


@contextmanager
def _anomaly(*, check_nan: bool) -> Any:
    with catch_warnings():
        simplefilter("ignore")
        watch = torch.autograd.detect_anomaly(check_nan=check_nan)
    with watch:
        yield


def under_program_frames(action: Step, frames: int = FRAMES) -> Any:
    """Call ``action`` with so many frames of the program's own beneath it."""
    if frames:
        return under_program_frames(action, frames - 1)
    return action()


def _as_library(name: str, source: str) -> dict[str, Any]:
    """Run source as a module of an installed package, which is nobody's own code."""
    scope: dict[str, Any] = {"__name__": f"a_library.{name}", "__file__": __file__}
    path = os.path.join(sysconfig.get_path("purelib"), "a_library", name + ".py")
    exec(compile(source, path, "exec"), scope)
    return scope


_TRAINER = """
def under_library_frames(action, frames):
    if frames:
        return under_library_frames(action, frames - 1)
    return action()
"""


def in_a_library(program: str) -> Step:
    """A program whose model and step belong to a library, with 100 of its frames beneath.

    So it is with a library's trainer and model: the user's own line is far away.
    """
    models = _as_library("models", Path(__file__).read_text(encoding="utf-8"))
    trainer = _as_library("trainer", _TRAINER)["under_library_frames"]
    step = models["PROGRAMS"][program]()
    return lambda: trainer(step, FRAMES)


class Column(NamedTuple):
    """One way to run a step, compared with the bare step that runs equally deep in the stack.

    Args:
        title: the column's heading.
        watch: makes the context that the step runs in.
        frames: how many frames of the program's own lie beneath it.
        library: whether the program and 100 frames beneath it belong to a library.
        share: how many pairs it gets, in parts of what recording gets.
    """

    title: str
    watch: Callable[[], AbstractContextManager[Any]]
    frames: int = 0
    library: bool = False
    share: float = 1.0


COLUMNS: dict[str, Column] = {
    "bare": Column("bare (the error of the method)", nullcontext),
    "record": Column("record", onegraph.record),
    "deep": Column("record, 100 frames deep", onegraph.record, frames=FRAMES),
    "library": Column("record, all in a library", onegraph.record, library=True),
    "install": Column("install", _installed, share=4.0),
    "anomaly": Column("detect_anomaly", lambda: _anomaly(check_nan=True), share=0.4),
    "anomaly-deep": Column(
        "detect_anomaly, 100 frames deep",
        lambda: _anomaly(check_nan=True),
        frames=FRAMES,
        share=0.15,
    ),
    "no-nan-check": Column(
        "detect_anomaly(check_nan=False)", lambda: _anomaly(check_nan=False), share=0.4
    ),
    "empty-mode": Column("empty TorchFunctionMode (the floor)", _Empty),
}

# The most that a step may cost, as a ratio to the bare one.
TARGETS: dict[str, dict[str, float]] = {
    "cnn": {"record": 1.10, "deep": 1.10, "install": 1.01},
    "transformer": {"record": 1.08, "deep": 1.08, "install": 1.01},
    "ntm": {"record": 1.30, "deep": 1.30, "install": 1.01},
}
