"""Splits a graph at a tensor, so that what is built on it may go backward piece by piece."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from onegraph.lifetime.nest import transform

T = TypeVar("T")

# So many nodes of a trunk are searched for the parameters that it needs unchanged.
NODES_SEARCHED = 200_000


class TrunkChanged(RuntimeError):
    """What a trunk's backward needs was changed before it could run."""


@contextmanager
def split_at(tree: T) -> Iterator[T]:
    """Split the graph at the tensors of a nest: leaves inside the block, the trunk outside.

    Any number of backward calls may follow one another inside, each through its own small graph
    and each freeing it. Their gradients gather in the leaves, and when the block is left one
    backward takes the sum through the trunk. By the chain rule that is exact: the gradients are
    those of one backward of the sum of all losses, without ``retain_graph`` and with one block's
    graph in memory at a time::

        features = encoder(images)
        with split_at(features) as leaf:
            for head in heads:
                head(leaf).backward()
        optimizer.step()

    ``break`` and ``return`` out of the block go through the trunk as well; an exception does not.
    Blocks nest. While gradients are switched off, the nest comes back as it is.

    Args:
        tree: a tensor or a nest of them, as in `detach`. Those that require no gradient are
            passed on.

    Yields:
        The nest with leaves in the tensors' places. They share the tensors' memory.

    Warns:
        UserWarning: no backward inside reached one of the leaves.

    Raises:
        TrunkChanged: a parameter or an output of the trunk was changed in place inside, by an
            optimizer's step for example. No gradient has gone into the trunk then.
        TypeError: the nest holds what cannot be looked into.
    """
    if not torch.is_grad_enabled():
        yield tree
        return
    trunk = _Trunk()
    leaves = transform(tree, trunk.leaf, "split the graph at")
    trunk.watch()
    yield leaves
    trunk.check()
    for path in trunk.without_gradient():
        warnings.warn(f"split_at: no backward inside the block reached {path}", stacklevel=3)
    trunk.backward()


class _Trunk:
    """The outer half of a split graph."""

    def __init__(self) -> None:
        self._pairs: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        # (what it is called, tensor, version) of what the trunk's backward needs as it was.
        self._needed: list[tuple[str, torch.Tensor, int]] = []

    def leaf(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        """A leaf in a tensor's place."""
        if not tensor.requires_grad:
            return tensor
        leaf = tensor.detach().requires_grad_()
        self._pairs.append((path, tensor, leaf))
        return leaf

    def watch(self) -> None:
        """Note the versions of the trunk's outputs and of the leaves that it comes from."""
        self._needed = [(path, tensor, tensor._version) for path, tensor, _ in self._pairs]
        seen: set[Any] = {tensor.grad_fn for _, tensor, _ in self._pairs} - {None}
        stack = list(seen)
        while stack and len(seen) < NODES_SEARCHED:
            node = stack.pop()
            for other, _ in node.next_functions:
                if other is None or other in seen:
                    continue
                seen.add(other)
                stack.append(other)
                variable = getattr(other, "variable", None)
                if isinstance(variable, torch.Tensor):
                    name = f"a parameter of shape {list(variable.shape)}, used by {node.name()},"
                    self._needed.append((name, variable, variable._version))

    def check(self) -> None:
        """Make sure that nothing noted has changed."""
        changed = [name for name, tensor, version in self._needed if tensor._version != version]
        if changed:
            raise TrunkChanged(
                f"split_at: {changed[0]} was changed in place inside the block"
                + (f", and {len(changed) - 1} more" if len(changed) > 1 else "")
                + ". The trunk's backward comes when the block is left, and needs it as it was: "
                "call optimizer.step() after the block. No gradient has gone into the trunk."
            )

    def without_gradient(self) -> list[str]:
        """Where the leaves stand that no backward reached."""
        return [path for path, _, leaf in self._pairs if leaf.grad is None]

    def backward(self) -> None:
        """Take what has gathered in the leaves through the trunk, in one pass."""
        reached = [(tensor, leaf.grad) for _, tensor, leaf in self._pairs if leaf.grad is not None]
        if reached:
            tensors, gradients = zip(*reached, strict=True)
            for _, _, leaf in self._pairs:
                leaf.grad = None
            torch.autograd.backward(tensors, gradients)
