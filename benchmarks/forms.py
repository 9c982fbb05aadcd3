"""The same gradients in several forms: with the primitives, and as people write it today."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from onegraph.lifetime import (
    backward_windows,
    blocks,
    detach,
    pairwise_blocks,
    split_at,
    windows,
)


@dataclass(slots=True)
class Case:
    """Parameters, and forms of back-propagating into them one loss, which each form returns.

    Args:
        used: what the gradients of a step are, where a form steps more than once.
        code: the functions whose lines a user writes, by form.
    """

    parameters: list[torch.Tensor]
    forms: dict[str, Callable[[], float]]
    used: dict[str, Callable[[], list[torch.Tensor]]] = field(default_factory=dict)
    code: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def run(self, form: str) -> float:
        """Back-propagate once, from the same state each time."""
        torch.manual_seed(1)
        for parameter in self.parameters:
            parameter.grad = None
        return self.forms[form]()

    def gradients(self, form: str) -> list[torch.Tensor]:
        """The gradients that a form gives."""
        self.run(form)
        if form in self.used:
            return self.used[form]()
        return [p.grad.clone() for p in self.parameters if p.grad is not None]

    def lines(self, form: str) -> int:
        """How many lines a user writes, without the head of the function that they are in."""
        return len(inspect.getsource(self.code[form]).strip().splitlines()) - 1


def mlp(*widths: int, dtype: torch.dtype) -> nn.Sequential:
    """Linear layers with tanh after each."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out, dtype=dtype), nn.Tanh()]
    return nn.Sequential(*layers)


# -- a trunk as costly as its blocks --------------------------------------------------------------


def trunk(count: int, rows: int, width: int, dtype: torch.dtype = torch.float32) -> Case:
    """A network, and on parts of its output, ``count`` of them, another just as large."""
    torch.manual_seed(0)
    body, head = (mlp(*[width] * 5, dtype=dtype) for _ in range(2))
    x = torch.randn(rows, width, dtype=dtype)
    size = rows // count

    def loss_of(part: torch.Tensor) -> torch.Tensor:
        return head(part).square().sum() / x.numel()

    def summed() -> float:
        out = body(x)
        loss = sum(loss_of(part) for part in out.split(size))
        loss.backward()
        return float(loss.detach())

    def retained() -> float:
        out = body(x)
        total = 0.0
        for part in out.split(size):
            loss = loss_of(part)
            loss.backward(retain_graph=True)
            total += float(loss.detach())
        return total

    def split() -> float:
        total = 0.0
        with split_at(body(x)) as leaf:
            for block in blocks(leaf, size):
                loss = loss_of(block.values)
                loss.backward()
                total += float(loss.detach())
        return total

    forms = {"summed": summed, "retain_graph": retained, "split_at, blocks": split}
    return Case([*body.parameters(), *head.parameters()], forms)


# -- all pairs behind an encoder ------------------------------------------------------------------


def pairs(n: int, d: int, block: int, hidden: int, dtype: torch.dtype = torch.float32) -> Case:
    """A loss of every pair of n codes, through a network with a hidden layer that sees both."""
    torch.manual_seed(0)
    encoder = mlp(d, d, d, dtype=dtype)
    layers = [nn.Linear(2 * d, hidden, dtype=dtype), nn.ReLU(), nn.Linear(hidden, 1, dtype=dtype)]
    head = nn.Sequential(*layers)
    x = torch.randn(n, d, dtype=dtype)

    def loss_of(features: torch.Tensor) -> torch.Tensor:
        return head(features).square().sum() / n**2

    def whole() -> float:
        codes = encoder(x)
        rows, cols = (codes.unsqueeze(k).expand(n, n, d) for k in (1, 0))
        loss = loss_of(torch.cat([rows, cols], dim=-1))
        loss.backward()
        return float(loss.detach())

    def blockwise() -> float:
        total = 0.0
        with split_at(encoder(x)) as codes:
            for b in pairwise_blocks(codes, block=block):
                loss = loss_of(b.features)
                loss.backward()
                total += float(loss.detach())
        return total

    forms = {"whole matrix": whole, "pairwise_blocks": blockwise}
    return Case([*encoder.parameters(), *head.parameters()], forms)


# -- truncated back-propagation -------------------------------------------------------------------


class Gathering(torch.optim.SGD):
    """Adds up the gradients that its steps are given, and moves nothing."""

    gathered: list[torch.Tensor] | None = None

    def step(self, closure: Any = None) -> None:
        found = [p.grad.clone() for group in self.param_groups for p in group["params"]]
        before = self.gathered or [torch.zeros_like(one) for one in found]
        self.gathered = [one + other for one, other in zip(before, found, strict=True)]


def by_hand(model: Any, optimizer: Any, loss_fn: Any, x: Any, y: Any, steps: int) -> float:
    total, state = 0.0, None
    for start in range(0, len(x), steps):
        out, state = model(x[start : start + steps], state)
        loss = loss_fn(out, y[start : start + steps]) * len(out) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        state = tuple(part.detach() for part in state)
    return total


def windowed(model: Any, optimizer: Any, loss_fn: Any, x: Any, y: Any, steps: int) -> float:
    total, state = 0.0, None
    for window in windows((x, y), steps):
        inputs, targets = window.data
        out, state = model(inputs, state)
        loss = window.weigh(loss_fn(out, targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        state = detach(state)
    return total


def one_call(model: Any, optimizer: Any, loss_fn: Any, x: Any, y: Any, steps: int) -> float:
    def step(data: Any, state: Any) -> Any:
        out, state = model(data[0], state)
        return loss_fn(out, data[1]), state

    optimizer.zero_grad()
    loss, _ = backward_windows(step, (x, y), steps, None)
    optimizer.step()
    return loss.item()


def ignited(model: Any, optimizer: Any, loss_fn: Any, x: Any, y: Any, steps: int) -> float:
    trainer = create_supervised_tbptt_trainer(model, optimizer, loss_fn, steps)  # noqa: F821
    trainer.run([(x, y)])
    return trainer.state.output


def sequence(
    length: int, steps: int, batch: int, width: int, dtype: torch.dtype = torch.float32
) -> Case:
    """A recurrent network on a sequence whose last window is short."""
    torch.manual_seed(0)
    model = nn.LSTM(width, width, dtype=dtype)
    x, y = (torch.randn(length, batch, width, dtype=dtype) for _ in range(2))
    loss_fn, made = nn.MSELoss(), {}

    def form(name: str, function: Callable[..., float]) -> Callable[[], float]:
        def run() -> float:
            made[name] = Gathering(model.parameters(), lr=0.1)
            return function(model, made[name], loss_fn, x, y, steps)

        return run

    def untruncated(*_: Any) -> float:
        loss = loss_fn(model(x)[0], y)
        loss.backward()
        return loss.item()

    code = {"by hand": by_hand, "windows": windowed, "backward_windows": one_call}
    if ignite():
        code["Ignite"] = ignited
    forms = {"whole sequence": untruncated}
    forms |= {name: form(name, function) for name, function in code.items()}
    used = {name: lambda name=name: made[name].gathered for name in code}
    if "Ignite" in code:
        # Its steps are as many as there are windows: what they use on average.
        count = -(-length // steps)
        used["Ignite"] = lambda: [one / count for one in made["Ignite"].gathered]
    return Case(list(model.parameters()), forms, used, code)


def ignite() -> bool:
    """Whether Ignite is installed; it is imported then."""
    try:
        from ignite.contrib.engines import create_supervised_tbptt_trainer
    except ImportError:
        return False
    globals()["create_supervised_tbptt_trainer"] = create_supervised_tbptt_trainer
    return True


# -- a large batch, each item against all ---------------------------------------------------------


def split_and_checkpoint(encoder: Any, loss_fn: Any, x: Any, y: Any, chunk: int) -> float:
    def encode(items: Any) -> Any:
        parts = items.split(chunk)
        return torch.cat([checkpoint(encoder, part, use_reentrant=False) for part in parts])

    with split_at((encode(x), encode(y))) as (ours, theirs):
        loss = loss_fn(ours, theirs)
        loss.backward()
    return loss.item()


def split_rows(encoder: Any, loss_fn: Any, x: Any, y: Any, chunk: int) -> float:
    def encode(items: Any) -> Any:
        parts = items.split(chunk)
        return torch.cat([checkpoint(encoder, part, use_reentrant=False) for part in parts])

    total = 0.0
    with split_at((encode(x), encode(y))) as (ours, theirs):
        for block in blocks(ours, chunk):
            loss = loss_fn(block.values, theirs, block.index[0].start) * len(block.values) / len(x)
            loss.backward()
            total += loss.item()
    return total


def grad_cached(encoder: Any, loss_fn: Any, x: Any, y: Any, chunk: int) -> float:
    cache = GradCache(models=[encoder, encoder], chunk_sizes=chunk, loss_fn=loss_fn)  # noqa: F821
    return cache(x, y).item()


def contrast(
    n: int, width: int, chunk: int, dtype: torch.dtype = torch.float32, peer: str | None = None
) -> Case:
    """Two views of n items through one encoder with dropout, each view against all others."""
    torch.manual_seed(0)
    layers = [mlp(width, width, width, dtype=dtype), nn.Dropout(0.1), mlp(width, 64, dtype=dtype)]
    encoder = nn.Sequential(*layers)
    x, y = (torch.randn(n, width, dtype=dtype) for _ in range(2))

    def loss_fn(ours: torch.Tensor, theirs: torch.Tensor, first: int = 0) -> torch.Tensor:
        return F.cross_entropy(ours @ theirs.t(), torch.arange(first, first + len(ours)))

    def whole() -> float:
        # A chunk at a time, as the others: dropout then draws the same numbers.
        codes = [torch.cat([encoder(part) for part in one.split(chunk)]) for one in (x, y)]
        loss = loss_fn(*codes)
        loss.backward()
        return loss.item()

    code = {"split_at, checkpoint": split_and_checkpoint, "the same, blocks of rows": split_rows}
    if grad_cache(peer):
        code["GradCache"] = grad_cached
    forms = {"whole batch": whole}
    for name, function in code.items():
        forms[name] = lambda function=function: function(encoder, loss_fn, x, y, chunk)
    return Case(list(encoder.parameters()), forms, code=code)


def grad_cache(folder: str | None) -> bool:
    """Whether GradCache is there, in a checkout or installed; it is imported then."""
    if folder:
        for path in (Path(folder), Path(folder) / "src"):
            if (path / "grad_cache").is_dir() and str(path) not in sys.path:
                sys.path.insert(0, str(path))
    try:
        from grad_cache import GradCache
    except ImportError:
        return False
    globals()["GradCache"] = GradCache
    return True


# -- what the graph holds -------------------------------------------------------------------------


class Held:
    """Counts the bytes of the tensors that graphs have saved, each memory once."""

    def __init__(self, but: list[torch.Tensor]) -> None:
        self._but = {tensor.untyped_storage().data_ptr() for tensor in but}
        self._times: dict[int, int] = {}
        self._now = 0
        self.most = 0

    def take(self, tensor: torch.Tensor) -> _Saved:
        """A tensor is saved."""
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if place in self._but:
            return _Saved(tensor, None)
        self._times[place] = self._times.get(place, 0) + 1
        if self._times[place] == 1:
            self._now += size
            self.most = max(self.most, self._now)

        def drop() -> None:
            self._times[place] -= 1
            if not self._times[place]:
                del self._times[place]
                self._now -= size

        return _Saved(tensor, drop)


class _Saved:
    def __init__(self, tensor: torch.Tensor, drop: Callable[[], None] | None) -> None:
        self.tensor, self._drop = tensor, drop

    def __del__(self) -> None:
        if self._drop is not None:
            self._drop()


@contextmanager
def held(but: list[torch.Tensor]) -> Iterator[Held]:
    """Count what graphs save inside, other than these tensors."""
    count = Held(but)
    with torch.autograd.graph.saved_tensors_hooks(count.take, lambda saved: saved.tensor):
        yield count


CASES: dict[str, Callable[..., Case]] = {
    "trunk": trunk,
    "pairs": pairs,
    "sequence": sequence,
    "contrast": contrast,
}
