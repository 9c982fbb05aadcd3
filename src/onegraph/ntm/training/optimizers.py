"""The optimisers that presets name, and their state as checkpoints hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from onegraph.ntm.training.options import Options


class GravesRMSprop(torch.optim.Optimizer):
    """RMSProp as Graves 2013 (arXiv:1308.0850) has it, equations 38 to 45.

    n ← ρ n + (1 - ρ) g²;  m ← ρ m + (1 - ρ) g;  Δ ← μ Δ - η g / √(n - m² + ε);  w ← w + Δ

    torch's centred RMSprop adds ε outside the root: where gradients are small, the same ε makes far
    smaller steps here than there.

    Args:
        parameters: what to train.
        lr: η.
        decay: ρ.
        momentum: μ.
        eps: ε.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-4,
        decay: float = 0.95,
        momentum: float = 0.9,
        eps: float = 1e-4,
    ) -> None:
        settings = {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps}
        super().__init__(parameters, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Change the parameters once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            rest = 1 - group["decay"]
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state: dict[str, Any] = self.state[parameter]
                if not state:
                    for name in ("square", "mean", "change"):
                        state[name] = torch.zeros_like(parameter)
                square, mean, change = state["square"], state["mean"], state["change"]
                square.lerp_(gradient * gradient, rest)
                mean.lerp_(gradient, rest)
                # Never negative but for rounding, which ε may not outweigh.
                spread = torch.addcmul(square, mean, mean, value=-1).clamp_(min=0)
                change.mul_(group["momentum"])
                change.addcdiv_(gradient, spread.add_(group["eps"]).sqrt_(), value=-group["lr"])
                parameter.add_(change)
        return loss


def set_rate(optimizer: torch.optim.Optimizer, options: Options, step: int) -> None:
    """Give the optimiser the learning rate of a step, the first being 1.

    It depends on nothing else, so that a run that goes on has the rates of one that never stopped.
    """
    if options.lr_end is None or options.lr_steps is None:
        return
    fallen = (step - options.lr_hold) / (options.lr_steps - options.lr_hold)
    share = min(max(fallen, 0.0), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = options.lr * (options.lr_end / options.lr) ** share


def make_optimizer(options: Options, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """The optimiser that the options name."""
    if options.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=options.lr)
    if options.optimizer == "graves":
        return GravesRMSprop(parameters, lr=options.lr)
    if options.optimizer == "rmsprop-uncentred":
        return torch.optim.RMSprop(
            parameters, lr=options.lr, alpha=0.95, momentum=0.9, foreach=True
        )
    return torch.optim.RMSprop(
        parameters, lr=options.lr, alpha=0.95, eps=1e-4, centered=True, momentum=0.9, foreach=True
    )


def split_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's state as tensors by "index.name", and the rest, which JSON can hold."""
    state = optimizer.state_dict()
    found, rest = {}, {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                found[f"{index}.{name}"] = value
            else:
                rest[f"{index}.{name}"] = value
    return found, {"groups": state["param_groups"], "rest": rest}


def join_optimizer(
    optimizer: torch.optim.Optimizer, found: dict[str, Tensor], settings: dict[str, Any]
) -> None:
    """Put back what `split_optimizer` took apart.

    Raises:
        ValueError: it is of another optimiser, or of another learning rate.
    """
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**found, **settings["rest"]}.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    before = [{**group} for group in optimizer.param_groups]
    optimizer.load_state_dict({"state": state, "param_groups": settings["groups"]})
    for asked, found in zip(before, optimizer.param_groups, strict=True):
        # torch takes any settings, and fails at the first step that misses one of its own.
        if not asked.keys() <= found.keys():
            raise ValueError("it was written by another optimizer")
        if asked["lr"] != found["lr"]:
            raise ValueError(f"it was written with lr {found['lr']}, not {asked['lr']}")
