"""Forms of Python in which the line of a call is easy to miss."""

from __future__ import annotations

# fmt: off
# Where a line is broken is what these programs are about.
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.exactness.programs import program
from tests.exactness.programs.functions import leaf


class Pair(nn.Module):
    """Two layers called in an expression over several lines."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 3)
        self.right = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [
                self.left(x).tanh(),
                self.right(
                    x * 2,
                )
                - self.left(
                    x
                    ** 2
                ),
            ],
            dim=-1,
        ).sum(
            -1
        )

    @property
    def norm(self) -> torch.Tensor:
        return self.left.weight.norm()

    def __add__(self, other: Any) -> torch.Tensor:
        return self.norm + other

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.left.weight[index]

    def __iter__(self) -> Iterator[torch.Tensor]:
        for row in self.left.weight:
            yield row.exp()


@program()
def comprehensions() -> Any:
    """A call in a comprehension, a lambda or a generator belongs to its line there."""
    x = leaf(3, 3)
    pair = Pair()
    made = [
        pair(
            row * 2
        )
        for row in x
    ]
    kept = {
        name: value.exp()
        for name, value in pair.named_parameters()
    }
    double = lambda t: t * 2  # noqa: E731
    lazy = (
        t.sin()
        for t in made
    )
    summed = sum(
        double(t)
        for t in lazy
    )
    mapped = list(map(lambda t: t.cos(), made))  # noqa: C417
    best = max(made, key=lambda t: float(t.exp().detach()))
    chosen = sorted(made, key=lambda t: t.sum().item())
    return made, kept, summed, mapped, best, chosen


@program()
def several_lines() -> Any:
    """In a statement over several lines each call has the line that Python gives it."""
    x = leaf(3, 3)
    y = (
        x.exp()
        .sin()
        .mul(
            2
        )
    )
    z = torch.stack([
        x * 1,
        x
        + 2,
        torch.where(
            x > 0,
            x.cos(),
            -x,
        ),
    ])
    w = x @ x + x * x - x / x; v = w.tanh()  # noqa: E702
    u = (x if x.sum() > 0 else
         x.neg()).exp()
    loss = (y - z
            ).pow(2).mean() + \
        v.abs().mean()
    return y, z, w, v, u, loss


@program()
def methods() -> Any:
    """Properties, operators, iteration and calls of the user's classes have their lines."""
    pair = Pair()
    made = [pair.norm, pair + 1, pair[0].exp(), *pair]

    class Callable_:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

        def __enter__(self) -> torch.Tensor:
            return leaf().exp()

        def __exit__(self, *error: object) -> None:
            made.append(leaf().cos())

        __radd__ = staticmethod(lambda other: leaf() * other)

    with Callable_() as entered:
        made.append(entered * 2)
    made.append(Callable_()(leaf()))
    made.append(3 + Callable_())
    made.append(functools.reduce(lambda a, b: a * b, made[:2]))
    made.append(functools.partial(torch.mul, other=2)(leaf()))
    return made


def descend(x: torch.Tensor, depth: int) -> torch.Tensor:
    """Computes on the way down and up."""
    if depth == 0:
        return x.exp()
    y = descend(x * 1, depth - 1)
    return y + x


@program()
def recursion() -> Any:
    """A function that calls itself has a node for each turn, deeper than a chain is kept."""
    return descend(leaf(), 100)


@program()
def nested_functions() -> Any:
    """A closure, a decorated function and a generator that is sent values have their own lines."""

    def outer(x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y * x

        return inner(x.exp())

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any) -> Any:
            return function(*args) + leaf()

        return wrapped

    @decorate
    @torch.enable_grad()
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def steps(h: torch.Tensor) -> Iterator[torch.Tensor]:
        while True:
            sent = yield h
            h = h.tanh() + sent

    walk = steps(leaf())
    first = next(walk)
    second = walk.send(first * 2)
    third = walk.send(second * 2)
    return outer(leaf()), decorated(leaf()), third


@program()
def generated() -> Any:
    """Code run by exec or eval has its file's line, or without a file that of who ran it."""
    space: dict[str, Any] = {"torch": torch, "leaf": leaf}
    exec("def f(x):\n    y = x.exp()\n    return y.sin()\n", space)
    y = space["f"](leaf())
    source = "def g(x):\n    y = x.exp()\n    return (\n        y.sin()\n        + 1)\n"
    exec(compile(source, "/a/file/that/never/was.py", "exec"), space)
    z = space["g"](leaf())
    w = eval("leaf().cos() * 2", space)
    return y, z, w, [eval(compile("leaf().cos()", f"/a/file/{k}.py", "eval"), space) for k in "ab"]


@program()
def same_line_again() -> Any:
    """A line that runs many times, from many places, is itself each time."""
    x = leaf()
    total = x.sum()
    for k in range(50):
        y = descend(x, k % 3)
        if k % 2:
            y = y.exp()
        total = total + y.sum()
    return total


@program()
def short_lived_code() -> Any:
    """Code objects that come and go at one address are never taken for one another."""
    made = []
    for k in range(200):
        blank = "\n" * (k % 17)
        space: dict[str, Any] = {"x": leaf()}
        exec(compile(f"{blank}y = x.exp()\nz = y * 2\n", f"/a/file/{k % 5}.py", "exec"), space)
        made.append(space["z"])
        del space
    return made
