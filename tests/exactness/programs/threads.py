"""Threads, which count their nodes each from nought."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from tests.exactness.programs import program
from tests.exactness.programs.functions import leaf, scale


def train(number: int) -> list[torch.Tensor]:
    """The same work in each thread, and as much as is asked for."""
    made = []
    for _ in range(number):
        x = leaf()
        y = x.exp()
        made.append(y.sum())
    torch.autograd.grad(made[-1], y, retain_graph=True)
    return made


def one(x: torch.Tensor) -> torch.Tensor:
    """Makes nodes that its fellow below makes too, elsewhere."""
    y = x * 2
    y = y.exp()
    return y.sum() * y.sum()


def other(x: torch.Tensor) -> torch.Tensor:
    """Makes nodes of the same types at the same numbers."""
    y = x * 2
    y = y.exp()
    return y.mean() * y.sum()


def in_new_thread(function: Any, *args: Any) -> Any:
    """Run a function in a thread of its own."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(function(*args)))
    thread.start()
    thread.join()
    return result[0]


@program()
def same_code() -> Any:
    """Threads that run the same lines at the same numbers know their lines."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(train, [3, 3, 3, 3]))


@program(unknown=None)
def different_code() -> Any:
    """A number that two threads gave out in different lines has none, whoever asks."""
    x = leaf()
    a = in_new_thread(one, x)
    b = in_new_thread(other, x)
    return a, b, in_new_thread(one, a), other(x) + a + b


@program(unknown=None)
def more_of_the_same() -> Any:
    """Threads that are out of step with one another, calling the engine now and then."""
    x = leaf()
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(train, [1, 5, 9]))
        made += list(pool.map(lambda f: f(x), [one, other, one]))
    main = train(7)
    return made, main


def chosen(x: torch.Tensor, functions: list[Any]) -> torch.Tensor:
    """One expression that calls another function each time it runs."""
    for function in functions:
        x = function(x)
    return x


def waves(x: torch.Tensor) -> torch.Tensor:
    """Makes nodes of one type, at numbers where the expression above makes others."""
    for _ in range(6):
        x = x.sin()
    return x


@program(unknown=None)
def changing_kinds() -> Any:
    """An expression that makes other types of nodes later on is not taken for another's."""
    x = leaf()
    a = in_new_thread(chosen, x, [torch.exp, torch.sin, torch.cos, torch.sin])
    b = in_new_thread(waves, x)
    return a, b


def aliased(x: torch.Tensor) -> torch.Tensor:
    """Applies a Function by a name bound earlier, among other calls."""
    y = scale(x * 1, 2.0)
    y = scale(y, 2.0)
    return y.exp()


@program(unknown=None)
def alias() -> Any:
    """A thread's node that nobody saw made does not get another thread's line."""
    x = leaf()
    a = in_new_thread(aliased, x)
    b = in_new_thread(waves, x)
    return a, b, aliased(a)
