"""Answers torch's own functions that ask whether a function mode is on: not ours."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from onegraph.recorder import torchapi
from onegraph.recorder.mode import Recording
from onegraph.recorder.session import Recorder
from onegraph.recorder.tape import Tape


class Questions:
    """Stands in for the questions of torch's Python functions, in every module that has them.

    Attention asks for the sake of its fast path, most others to start over through the mode. They
    would be on the stack twice then, in tracebacks and in the levels that warnings count, for
    nothing: what they call inside is seen one by one.
    """

    def __init__(self, recorder: Recorder, tape: Callable[[], Tape | None]) -> None:
        self._recorder = recorder
        self._tape = tape
        # By name: torch's own function and ours.
        self._pairs: dict[str, tuple[Any, Any]] = {}
        self._places: list[tuple[dict[str, Any], str]] = []
        self._modules = 0
        self._unscript: list[Callable[[], object]] = []

    def answer(self) -> None:
        """Put our functions wherever torch's own are bound under their names."""
        for name, original in torchapi.questions().items():
            ours = self._asks(original)
            self._pairs[name] = original, ours
            self._unscript.append(torchapi.script_as_builtin(ours, original))
        self.show(False)

    def leave(self) -> None:
        """Put torch's own functions back, also where modules imported since then took ours."""
        self.show(True)
        while self._unscript:
            self._unscript.pop()()
        self._pairs.clear()
        self._places.clear()

    def show(self, originals: bool) -> None:
        """Let modules have torch's own functions or ours."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._places = list(_bound(self._pairs))
        for names, name in self._places:
            original, ours = self._pairs[name]
            now, then = (ours, original) if originals else (original, ours)
            if names.get(name) is now:
                names[name] = then

    def _asks(self, original: Callable[..., bool]) -> Callable[..., bool]:
        recorder = self._recorder
        depth, mode_at = torchapi.depth, torchapi.mode_at

        @functools.wraps(original)
        def asks(*args: Any) -> bool:
            modes = depth()
            if modes == 0 or (modes == 1 and recorder.active and isinstance(mode_at(0), Recording)):
                # The usual case, quickly: torch asks this for every call, and of plain arguments.
                things = args[0] if len(args) == 1 and type(args[0]) is tuple else args
                for thing in things:
                    if type(thing) not in _PLAIN:
                        break
                else:
                    return False
            return original(*args) and self._without_ours(original, args)

        return asks

    def _without_ours(self, original: Callable[..., bool], args: tuple[Any, ...]) -> bool:
        self._tape()
        ours = next((mode for mode in torchapi.modes() if isinstance(mode, Recording)), None)
        above = torchapi.remove_mode(ours)
        try:
            return original(*args)
        finally:
            if above is not None:
                torchapi.insert_mode(ours, above)


# What torch takes for no stand-in for a tensor.
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, type(None), bool, int, float, str})
_NAMESPACE: Any = vars(ModuleType)["__dict__"]


def _bound(pairs: dict[str, tuple[Any, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """The modules' namespaces that have one of the functions under its name."""
    for module in list(sys.modules.values()):
        try:
            # A lazily loaded module would load if asked in the usual way.
            names = _NAMESPACE.__get__(module)
        except TypeError:
            continue
        for name, pair in pairs.items():
            found = names.get(name)
            if found is not None and any(found is one for one in pair):
                yield names, name
