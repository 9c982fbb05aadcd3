"""Works through a tensor, or all pairs of two tensors' rows, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch


@dataclass(slots=True, eq=False)
class Block:
    """One block of a tensor.

    Args:
        values: the block's own tensor; a leaf where the whole takes a gradient.
        index: the slices that it is of the whole, one a dimension.
        last: whether no other block follows.
    """

    values: torch.Tensor
    index: tuple[slice, ...]
    last: bool


@dataclass(slots=True, eq=False)
class PairBlock:
    """The pairs of some rows of ``x`` with some rows of ``y``.

    Args:
        left: (r, d_x) rows of ``x``.
        right: (c, d_y) rows of ``y``.
        rows, cols: which rows these are.
        last: whether no other block follows.
    """

    left: torch.Tensor
    right: torch.Tensor
    rows: slice
    cols: slice
    last: bool
    _features: torch.Tensor | None = field(default=None, repr=False)

    @property
    def features(self) -> torch.Tensor:
        """(r, c, d_x + d_y): each row of ``left`` beside each of ``right``."""
        if self._features is None:
            shape = (self.left.shape[0], self.right.shape[0])
            left = self.left.unsqueeze(1).expand(*shape, -1)
            right = self.right.unsqueeze(0).expand(*shape, -1)
            self._features = torch.cat((left, right), dim=-1)
        return self._features


def blocks(
    tensor: torch.Tensor, size: int | Sequence[int], dim: int | Sequence[int] = 0
) -> Iterator[Block]:
    """Cut a tensor into blocks that can go backward one by one.

    Each block's graph begins at the block, so that its backward frees all of it, and its gradient
    is added where it belongs in the gradient of the whole: the work of a block does not grow
    with the whole. The last blocks may be smaller::

        with split_at(scores) as leaf:
            for block in blocks(leaf, (64, 64), dim=(0, 1)):
                loss(block.values).backward()

    Args:
        tensor: a leaf, such as what `split_at` gives, or a tensor without gradient.
        size: of a block, for each of ``dim``.
        dim: the dimension to cut, or several.

    Returns:
        An iterator over the blocks, the last dimension's running fastest. A block's gradient is
        complete when the next one is asked for.

    Raises:
        ValueError: the tensor has a graph of its own, which every block's backward would walk
            again (`split_at` makes a leaf of it); or a size or dimension is wrong. Nothing has
            gone backward then.
    """
    _check(tensor, "blocks", "tensor")
    sizes = (size,) if isinstance(size, int) else tuple(size)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(sizes) != len(dims):
        raise ValueError(f"blocks: {len(sizes)} sizes for {len(dims)} dimensions")
    cuts: list[list[slice]] = [[slice(0, length)] for length in tensor.shape]
    for one, axis in zip(sizes, dims, strict=True):
        if not -tensor.dim() <= axis < tensor.dim():
            raise ValueError(f"blocks: a tensor of {tensor.dim()} dimensions has no {axis}")
        cuts[axis] = _slices(tensor.shape[axis], one, "blocks")
    return _blocks(tensor, list(product(*cuts)))


def _blocks(tensor: torch.Tensor, indices: list[tuple[slice, ...]]) -> Iterator[Block]:
    for k, index in enumerate(indices):
        part = _Part(tensor, index)
        try:
            yield Block(part.values, index, k == len(indices) - 1)
        finally:
            part.settle()


def pairwise_blocks(
    x: torch.Tensor, y: torch.Tensor | None = None, *, block: int | tuple[int, int] = 256
) -> Iterator[PairBlock]:
    """Go through all pairs of rows without ever making the n × m × (d_x + d_y) tensor of them.

    ``b.features`` holds a block of pairs; its loss goes backward at once, and the gradients in
    ``x`` and ``y`` are those of the whole matrix::

        with split_at(encoder(items)) as vectors:
            for b in pairwise_blocks(vectors, block=256):
                loss(head(b.features), labels[b.rows, b.cols]).backward()

    Args:
        x: (n, d_x), a leaf, such as what `split_at` gives, or a tensor without gradient.
        y: (m, d_y), likewise; ``x`` itself by default.
        block: rows of ``x`` and of ``y`` in a block, or one number for both.

    Returns:
        An iterator over ``ceil(n / rows) * ceil(m / cols)`` blocks, row by row; the last of a row
        or column may be smaller. A block's gradient is complete when the next one is asked for.

    Raises:
        ValueError: ``x`` or ``y`` has a graph of its own, which every block's backward would walk
            again (`split_at` makes a leaf of it), or is no matrix. Nothing has gone backward then.
    """
    if y is None:
        y = x
    for name, tensor in (("x", x), ("y", y)):
        _check(tensor, "pairwise_blocks", name)
        if tensor.dim() != 2:
            raise ValueError(f"pairwise_blocks: {name} is {list(tensor.shape)}, not a matrix")
    height, width = (block, block) if isinstance(block, int) else block
    rows = _slices(x.shape[0], height, "pairwise_blocks")
    cols = _slices(y.shape[0], width, "pairwise_blocks")
    return _pairs(x, y, list(product(rows, cols)))


def _pairs(
    x: torch.Tensor, y: torch.Tensor, places: list[tuple[slice, slice]]
) -> Iterator[PairBlock]:
    for k, (rows, cols) in enumerate(places):
        left, right = _Part(x, (rows,)), _Part(y, (cols,))
        try:
            yield PairBlock(left.values, right.values, rows, cols, k == len(places) - 1)
        finally:
            left.settle()
            right.settle()


def _check(tensor: torch.Tensor, function: str, name: str) -> None:
    if torch.is_grad_enabled() and tensor.requires_grad and not tensor.is_leaf:
        assert tensor.grad_fn is not None
        raise ValueError(
            f"{function}: {name} was made by {tensor.grad_fn.name()}, and the backward of each "
            "block would walk the graph behind it again; split the graph there: "
            f"`with split_at({name}) as {name}:`"
        )


def _slices(length: int, size: int, function: str) -> list[slice]:
    if size < 1:
        raise ValueError(f"{function}: a block of {size}")
    return [slice(at, min(at + size, length)) for at in range(0, length, size)]


class _Part:
    """A block of a leaf as a leaf of its own, whose gradient is added to that of the whole.

    A slice taken by autograd would give a gradient as large as the whole, for each block.
    """

    def __init__(self, whole: torch.Tensor, index: tuple[slice, ...]) -> None:
        self._whole, self._index = whole, index
        self._apart = torch.is_grad_enabled() and whole.requires_grad and not _hooked(whole)
        if self._apart:
            self.values = whole.detach()[index].requires_grad_()
        else:
            self.values = whole[index]

    def settle(self) -> None:
        """Bring the block's gradient home."""
        gradient = self.values.grad if self._apart else None
        if gradient is None:
            return
        if self._whole.grad is None:
            self._whole.grad = torch.zeros_like(self._whole)
        with torch.no_grad():
            self._whole.grad[self._index].add_(gradient.detach())
        self.values.grad = None


def _hooked(leaf: torch.Tensor) -> bool:
    """Whether someone listens to the leaf's own gradient, and must hear of each block's."""
    # Of what a wrapper such as DistributedDataParallel hangs on a parameter nothing can be seen.
    hooks = (leaf._backward_hooks, getattr(leaf, "_post_accumulate_grad_hooks", None))
    return isinstance(leaf, torch.nn.Parameter) or any(hooks)
