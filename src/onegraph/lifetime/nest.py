"""Nests of tensors: what a state, a batch or a model's output is made of."""

from __future__ import annotations

import array
import copy
import dataclasses
import enum
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch

T = TypeVar("T")

# What has no history and nothing inside that could have one.
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type),
    *(enum.Enum, array.array, torch.Size, torch.dtype, torch.device, torch.layout),
    *(torch.Generator, types.FunctionType, types.BuiltinFunctionType),
)


class HistoryError(AssertionError):
    """A tensor still has its history where it should have none."""


def detach(tree: T) -> T:
    """The same nest, cut from its history.

    Tensors come back as `torch.Tensor.detach` gives them: they share memory, and no gradient goes
    through. A tensor that stands in two places is one tensor afterwards too. What requires no
    gradient comes back as it is.

    Args:
        tree: a tensor; a tuple, named tuple, list, deque, set, mapping or dataclass of such; an
            object with a ``detach()`` method; numbers, strings, arrays and None pass through.

    Returns:
        A nest of the same types. Containers are new, also where nothing in them changed.

    Raises:
        TypeError: something in the nest is none of these; the message says where.
    """
    return transform(tree, _detached, "detach", opaque=lambda value, _: value.detach())


def assert_detached(tree: Any, name: str = "tree") -> None:
    """Make sure that no tensor of a nest has a history.

    A leaf that requires a gradient, such as a parameter, has none.

    Args:
        tree: as in `detach`.
        name: what to call the nest in the message.

    Raises:
        HistoryError: a tensor has; an `AssertionError` that names it and the node it comes from.
        TypeError: something in the nest cannot be looked into.
    """
    for path, tensor in tensors(tree, name):
        if tensor.grad_fn is not None:
            raise HistoryError(
                f"{path} still has its history: it was made by {tensor.grad_fn.name()}, and the "
                "next backward would walk that graph too; cut it with detach()"
            )


def _detached(_: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def tensors(tree: Any, name: str = "tree") -> Iterator[tuple[str, torch.Tensor]]:
    """(where, tensor) of each tensor of a nest, once each."""
    found: dict[int, tuple[str, torch.Tensor]] = {}

    def note(path: str, tensor: torch.Tensor) -> torch.Tensor:
        found.setdefault(id(tensor), (path, tensor))
        return tensor

    def within(value: Any, path: str) -> Any:
        for attribute, part in getattr(value, "__dict__", {}).items():
            if isinstance(part, torch.Tensor):
                note(f"{path}.{attribute}", part)
        return value

    transform(tree, note, "look into", name, opaque=within)
    return iter(found.values())


def transform(
    tree: T,
    change: Callable[[str, torch.Tensor], torch.Tensor],
    verb: str,
    name: str = "tree",
    opaque: Callable[[Any, str], Any] | None = None,
) -> T:
    """The same nest with each tensor changed; ``change`` is told where it stands.

    Args:
        verb: what is done, for the message when it cannot be.
        opaque: what an object with a ``detach()`` method becomes; without it, it is an error.
    """
    known: dict[int, Any] = {}
    # Keeps what was looked at alive, so that no id is given twice.
    alive: list[Any] = []

    def go(value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:
                alive.append(value)
                known[id(value)] = change(path, value)
            return known[id(value)]
        if isinstance(value, _PLAIN) or _of_numpy(value):
            return value
        if id(value) in known:
            if known[id(value)] is _OPEN:
                raise TypeError(f"cannot {verb} {path}: it contains itself")
            return known[id(value)]
        alive.append(value)
        known[id(value)] = _OPEN
        known[id(value)] = result = rebuild(value, path)
        return result

    def rebuild(value: Any, path: str) -> Any:
        again: Any
        kind = type(value)
        if isinstance(value, Mapping):
            parts = {key: go(part, f"{path}[{key!r}]") for key, part in value.items()}
            if kind is dict:
                return parts
            again = copy.copy(value)
            try:
                for key, part in parts.items():
                    again[key] = part
            except TypeError:  # a mapping that is read only
                return kind(parts)
            return again
        if isinstance(value, tuple):
            names = getattr(value, "_fields", None)
            if names is not None:
                made = [go(p, f"{path}.{n}") for n, p in zip(names, value, strict=True)]
                return kind._make(made) if hasattr(kind, "_make") else kind(*made)
            return kind([go(part, f"{path}[{k}]") for k, part in enumerate(value)])
        if isinstance(value, (list, deque)):
            again = copy.copy(value)
            for k, part in enumerate(value):
                again[k] = go(part, f"{path}[{k}]")
            return again
        if isinstance(value, (set, frozenset)):
            return kind([go(part, f"an element of {path}") for part in value])
        if dataclasses.is_dataclass(value):
            again = copy.copy(value)
            for field in dataclasses.fields(value):
                if hasattr(value, field.name):
                    part = go(getattr(value, field.name), f"{path}.{field.name}")
                    object.__setattr__(again, field.name, part)
            return again
        if opaque is not None and callable(getattr(value, "detach", None)):
            return opaque(value, path)
        raise TypeError(
            f"cannot {verb} {path}: a {kind.__module__}.{kind.__qualname__} is no tensor, no "
            "container of tensors, and has no detach() method"
        )

    result: T = go(tree, name)
    return result


_OPEN: Any = object()


def _of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))
