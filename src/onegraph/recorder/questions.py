"""Answers torch's own functions that ask whether a function mode is on: not ours."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

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
        modes, remove, insert = torchapi.modes, torchapi.remove_mode, torchapi.insert_mode
        depth, pop, push = torchapi.depth, torchapi.pop, torchapi.push

        @functools.wraps(original)
        def asks(*args: Any) -> bool:
            if not original(*args):
                return False
            if depth() == 1 and recorder.active:
                # The usual case, quickly: torch asks this for every call.
                mode = pop()
                answer = not isinstance(mode, Recording) or original(*args)
                push(mode)
                return answer
            self._tape()
            ours = next((mode for mode in modes() if isinstance(mode, Recording)), None)
            above = remove(ours)
            try:
                return original(*args)
            finally:
                if above is not None:
                    insert(ours, above)

        return asks


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
