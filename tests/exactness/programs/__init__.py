"""Programs whose nodes have lines that are easy to get wrong; each docstring says in what way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Made = Callable[[], Any]


class Program(NamedTuple):
    """A program, and how many of its nodes go without a line, None where that may vary."""

    name: str
    make: Made
    unknown: int | None


PROGRAMS: list[Program] = []


def program(*, unknown: int | None = 0) -> Callable[[Made], Made]:
    """Register a program that returns the tensors whose graphs are judged."""

    def register(make: Made) -> Made:
        name = f"{make.__module__.rpartition('.')[2]}.{make.__name__}"
        PROGRAMS.append(Program(name, make, unknown))
        return make

    return register
