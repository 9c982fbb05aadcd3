"""Truncated back-propagation through time: a sequence in windows, each with a graph of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import torch

from onegraph.lifetime.nest import detach, tensors, transform

S = TypeVar("S")

_warned: set[tuple[int, int]] = set()


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some steps of a sequence.

    Args:
        data: the steps, as the sequence's own nest.
        index: how many windows came before.
        start, stop: which steps of the sequence these are.
        warm: how many of the first were in the window before already; they carry no loss.
        carry: after how many steps the next window begins: the state to hand on is the one then.
        share: the window's part of the total weight; the shares of all windows sum to 1. Of a
            stream, whose total is not known: its part of a whole window's.
        last: whether no window follows.
        mask: True for the steps within each sample's length, in the layout of the data: (T, B) or
            (B, T); None when all are.
    """

    data: Any
    index: int
    start: int
    stop: int
    warm: int
    carry: int
    share: float
    last: bool
    mask: torch.Tensor | None = None
    _weights: torch.Tensor | None = field(default=None, repr=False)
    _total: float = field(default=1.0, repr=False)
    _dim: int = field(default=0, repr=False)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def empty(self) -> bool:
        """Whether no step carries a loss: there is nothing to go backward from."""
        return self.share == 0

    def weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """The window's part of the whole sequence's mean loss.

        The sum of all windows' parts is the mean over the whole sequence, whatever the windows'
        lengths: a short last window counts for less.

        Args:
            loss: one number, the mean over the steps that carry a loss; or one a step, shaped as
                the mask is (or (T,) without batch).

        Returns:
            One number to call ``backward()`` on.
        """
        if loss.dim() == 0:
            return loss * self.share
        weights = self._weights
        if weights is None:
            steps = loss.narrow(min(self._dim, loss.dim() - 1), self.warm, len(self) - self.warm)
            per_step = loss.numel() / len(self)
            return steps.sum() / (self._total * per_step)
        if weights.dim() == 1 and loss.dim() == 2:
            weights = weights.unsqueeze(1 - self._dim).expand_as(loss) / loss.shape[1 - self._dim]
        # Where the weight is nought a loss may be anything, also not a number.
        kept = torch.where(weights != 0, loss, torch.zeros_like(loss))
        return (kept * weights).sum() / self._total

    def freeze(self, new: S, old: S, step: int | None = None, *, batch: int = 0) -> S:
        """The new state of the samples that go on, the old one of those that have ended.

        Args:
            new, old: nests of the same structure.
            step: the step within the window that made ``new``; without it, a sample goes on when
                any step of the window is within its length.
            batch: the batch dimension of the state's tensors.

        Returns:
            A nest like ``new``; ``new`` itself where no sample has ended.
        """
        if self.mask is None:
            return new
        alive = self.mask.any(self._dim) if step is None else self.mask.select(self._dim, step)
        if bool(alive.all()):
            return new
        before = dict(tensors(old, "state"))
        chosen: dict[str, torch.Tensor] = {}
        for path, tensor in tensors(new, "state"):
            if path not in before:
                raise ValueError(f"freeze: the old state has no {path}")
            shape = [1] * tensor.dim()
            shape[batch] = -1
            chosen[path] = torch.where(alive.view(shape), tensor, before[path])
        return transform(new, lambda path, _: chosen[path], "freeze", "state")

    def sync(self, *modules: Any) -> AbstractContextManager[Any]:
        """Let wrapped modules add up gradients here, and share them after the last window only.

        Forward and backward both go inside. What has no ``no_sync`` needs none and is left alone.

        Args:
            modules: `DistributedDataParallel` modules and their like.
        """
        if self.last:
            return nullcontext()
        return _Unsynchronised([m for m in modules if hasattr(m, "no_sync")])


class _Unsynchronised:
    def __init__(self, modules: list[Any]) -> None:
        self._contexts = [module.no_sync() for module in modules]

    def __enter__(self) -> None:
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)


def windows(
    sequence: Any,
    steps: int,
    *,
    overlap: int = 0,
    dim: int = 0,
    lengths: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    total: float | None = None,
    delay: int | None = None,
) -> Iterator[Window]:
    """Go through a sequence in windows, for truncated back-propagation.

    What happens stays visible: forward, backward, detach, step::

        for window in windows((x, y), 50, lengths=lengths):
            inputs, targets = window.data
            outputs, new = model(inputs, state)
            if not window.empty:
                window.weigh(loss(outputs, targets)).backward()
            state = detach(window.freeze(new, state))
        optimizer.step()

    Compute inside the loop whatever depends on parameters: an input projection made once over the
    whole sequence would be walked by every window's backward (`split_at` is for that).

    Args:
        sequence: a tensor or a nest of tensors, all with T steps along ``dim``; or an iterable of
            single steps (tensors or nests) that may never end, which are stacked along ``dim``.
        steps: in a window; the last may have fewer.
        overlap: steps of a window that the one before ended with. They are there to warm up a
            state and carry no loss again. Hand on the state as it is after ``window.carry`` steps.
        dim: the time dimension: 0 for (T, B, ...), 1 for (B, T, ...).
        lengths: (B,) how many steps each sample has.
        mask: instead of ``lengths``: True within each sample, laid out as the data.
        weights: what each step's loss counts, (T,) or laid out as the data; the mask by default.
        total: the weight that all windows together are shares of, by default that of the whole
            sequence. With several processes, which average their gradients: the sum of all
            processes' weights divided by their number.
        delay: after how many steps at most what the model writes is read. A window that is
            shorter gives such a write no gradient, which is warned about once.

    Returns:
        An iterator over the windows.

    Raises:
        ValueError: the tensors differ in length along ``dim``, or a number is out of range.
    """
    if steps < 1 or not 0 <= overlap < steps:
        raise ValueError(f"windows: {steps} steps with an overlap of {overlap}")
    if delay is not None and delay > steps and (delay, steps) not in _warned:
        _warned.add((delay, steps))
        warnings.warn(
            f"windows of {steps} steps cut the gradient of what is read up to {delay} steps after "
            f"it was written; take windows of more than {delay} steps, or the whole sequence",
            stacklevel=2,
        )
    if _streams(sequence):
        if lengths is not None or mask is not None or weights is not None:
            raise ValueError("windows: lengths, mask and weights are for sequences, not streams")
        return _of_stream(sequence, steps, overlap, dim, total)
    length = _length(sequence, dim)
    if mask is None and lengths is not None:
        inside = torch.arange(length, device=lengths.device).unsqueeze(1) < lengths
        mask = inside if dim == 0 else inside.t()
    if weights is None:
        weights = mask
    if weights is not None and not weights.is_floating_point():
        weights = weights.float()
    if weights is not None and mask is not None and weights.dim() == 1:
        weights = weights.unsqueeze(1 - dim) * mask
    return _of_sequence(sequence, length, (steps, overlap, dim), mask, weights, total)


def _of_sequence(
    sequence: Any,
    length: int,
    sizes: tuple[int, int, int],
    mask: torch.Tensor | None,
    weights: torch.Tensor | None,
    total: float | None,
) -> Iterator[Window]:
    steps, overlap, dim = sizes
    per_step = None
    if weights is not None:
        per_step = weights if weights.dim() == 1 else weights.sum(1 - dim)
        # One transfer for all windows.
        counts = per_step.double().cpu().tolist()
    else:
        counts = [1.0] * length
    whole = total if total is not None else sum(counts)
    starts = _starts(length, steps, overlap)
    for index, start in enumerate(starts):
        stop = min(start + steps, length)
        warm = overlap if index else 0
        share = sum(counts[start + warm : stop]) / whole if whole else 0.0
        part = None
        if weights is not None:
            part = _narrow(weights, dim, start, stop).clone()
            part.narrow(_axis(part, dim), 0, warm).zero_()
        yield Window(
            data=transform(sequence, lambda _, t: _narrow(t, dim, start, stop), "cut", "sequence"),  # noqa: B023
            index=index,
            start=start,
            stop=stop,
            warm=warm,
            carry=(starts[index + 1] if index + 1 < len(starts) else stop) - start,
            share=share,
            last=index == len(starts) - 1,
            mask=None if mask is None else _narrow(mask, dim, start, stop),
            _weights=part,
            _total=whole or 1.0,
            _dim=dim,
        )


def _starts(length: int, steps: int, overlap: int) -> list[int]:
    """Where windows begin; none that would bring nothing new."""
    starts = [0] if length else []
    while starts and starts[-1] + steps < length:
        starts.append(starts[-1] + steps - overlap)
    return starts


def _of_stream(
    stream: Iterable[Any], steps: int, overlap: int, dim: int, total: float | None
) -> Iterator[Window]:
    source = iter(stream)
    held = list(islice(source, steps))
    start = index = 0
    whole = float(steps if total is None else total)
    while held:
        # Whether this is the last window is known when the stream has nothing more.
        coming = list(islice(source, steps - overlap))
        warm = overlap if index else 0
        yield Window(
            data=_stack(held, dim),
            index=index,
            start=start,
            stop=start + len(held),
            warm=warm,
            carry=steps - overlap if coming else len(held),
            share=(len(held) - warm) / whole,
            last=not coming,
            _total=whole,
            _dim=dim,
        )
        start += steps - overlap
        index += 1
        held = [*held[steps - overlap :], *coming] if coming else []


def backward_windows(
    step: Callable[[Any, S], tuple[torch.Tensor, S]],
    sequence: Any,
    steps: int,
    state: S,
    **options: Any,
) -> tuple[torch.Tensor, S]:
    """Truncated back-propagation in one call: forward, backward and detach for each window.

    Gradients add up in the parameters; the optimizer's step is the caller's::

        loss, state = backward_windows(step, (x, y), 50, state)
        optimizer.step()

    Args:
        step: takes a window's data and the state, returns the loss (as for `Window.weigh`) and
            the new state.
        sequence, steps, options: as in `windows`, without an overlap.
        state: a nest, as in `detach`.

    Returns:
        (the whole sequence's mean loss, detached and still on its device; the last state,
        detached).
    """
    if options.get("overlap"):
        raise ValueError("backward_windows: with an overlap, write the loop over windows()")
    sum_: Any = 0.0
    for window in windows(sequence, steps, **options):
        loss, new = step(window.data, state)
        if not window.empty:
            part = window.weigh(loss)
            part.backward()
            sum_ = sum_ + part.detach()
        state = detach(window.freeze(new, state))
    return torch.as_tensor(sum_), state


def _streams(sequence: Any) -> bool:
    if isinstance(sequence, (torch.Tensor, tuple, list, Mapping)):
        return False
    return hasattr(sequence, "__next__") or (
        hasattr(sequence, "__iter__") and not hasattr(sequence, "__dataclass_fields__")
    )


def _length(sequence: Any, dim: int) -> int:
    lengths = {}
    for path, tensor in tensors(sequence, "sequence"):
        if not tensor.dim():
            raise ValueError(f"windows: {path} is a single number, without steps")
        lengths[path] = tensor.shape[_axis(tensor, dim)]
    if not lengths:
        raise ValueError("windows: the sequence holds no tensor")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        raise ValueError(f"windows: different numbers of steps along dimension {dim}: {told}")
    return next(iter(lengths.values()))


def _narrow(tensor: torch.Tensor, dim: int, start: int, stop: int) -> torch.Tensor:
    return tensor.narrow(_axis(tensor, dim), start, stop - start)


def _axis(tensor: torch.Tensor, dim: int) -> int:
    return dim if tensor.dim() > 1 else 0


def _stack(steps: list[Any], dim: int) -> Any:
    found = [dict(tensors(step, "step")) for step in steps]
    return transform(
        steps[0], lambda path, _: torch.stack([one[path] for one in found], dim), "stack", "step"
    )
