"""Several losses over one graph, in a single pass of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, overload

import torch


class Scaler(Protocol):
    """What `torch.amp.GradScaler` does to a loss."""

    def scale(self, outputs: torch.Tensor) -> torch.Tensor: ...


@overload
def backward_sum(
    losses: Mapping[str, torch.Tensor],
    weights: Mapping[str, Any] | None = None,
    *,
    scaler: Scaler | None = None,
) -> dict[str, float]: ...
@overload
def backward_sum(
    losses: Sequence[torch.Tensor],
    weights: Sequence[Any] | None = None,
    *,
    scaler: Scaler | None = None,
) -> list[float]: ...
def backward_sum(
    losses: Mapping[str, torch.Tensor] | Sequence[torch.Tensor],
    weights: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    scaler: Scaler | None = None,
) -> dict[str, float] | list[float]:
    """Back-propagate the weighted sum of several losses, walking what they share once.

    The gradients are those of ``sum(weights[k] * losses[k]).backward()``. A loss that requires no
    gradient counts in the result and is otherwise left out::

        parts = backward_sum({"policy": policy, "value": value}, {"value": 0.5})

    Args:
        losses: tensors of one element each, by name or in order.
        weights: numbers (or tensors of one element) by the same names, 1 for a name left out; or
            as many in order.
        scaler: of mixed precision: the gradients are scaled as its ``scale(loss)`` would do it.

    Returns:
        The losses as numbers, unweighted: a dict for a mapping, else a list. Reading them makes
        the program wait for the device once.

    Raises:
        ValueError: there is no loss, one has not exactly one element, or the weights are for
            other losses.
        RuntimeError: no loss requires a gradient.
    """
    parts: dict[Any, Any] = dict(losses if isinstance(losses, Mapping) else enumerate(losses))
    if not parts:
        raise ValueError("backward_sum: there is no loss")
    for name, loss in parts.items():
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = list(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"backward_sum: losses[{name!r}] is {shape}, not one number")
    factors = _factors(parts, weights)
    roots = [(loss, factors[name]) for name, loss in parts.items() if loss.requires_grad]
    if not roots:
        raise RuntimeError("backward_sum: none of the losses requires a gradient")
    gradients = []
    for loss, factor in roots:
        gradient = torch.ones_like(loss) if factor is None else torch.ones_like(loss) * factor
        gradients.append(gradient if scaler is None else scaler.scale(gradient))
    torch.autograd.backward([loss for loss, _ in roots], gradients)
    values = torch.stack([loss.detach().reshape(()).double() for loss in parts.values()]).tolist()
    return dict(zip(parts, values, strict=True)) if isinstance(losses, Mapping) else list(values)


def _factors(
    parts: Mapping[Any, torch.Tensor], weights: Mapping[str, Any] | Sequence[Any] | None
) -> dict[Any, Any]:
    if weights is None:
        given: dict[Any, Any] = {}
    elif isinstance(weights, Mapping):
        given = dict(weights)
    else:
        given = dict(enumerate(weights))
        if len(given) != len(parts):
            raise ValueError(f"backward_sum: {len(given)} weights for {len(parts)} losses")
    strange = [name for name in given if name not in parts]
    if strange:
        raise ValueError(f"backward_sum: a weight for {strange[0]!r}, which is none of the losses")
    return {
        name: weight.detach() if isinstance(weight, torch.Tensor) else weight
        for name, weight in ((name, given.get(name)) for name in parts)
    }
