"""Acts once a module has been imported. Imports no torch: it may be what waits for torch."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been imported, or at once when it already is."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._actions = dict(actions)

    def install(self) -> None:
        """Act on what is loaded and watch for the rest."""
        for name in [n for n in self._actions if n in sys.modules]:
            self._actions.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as usual, with the action behind its loading."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                _act_after(spec.loader, action)
                return spec
        return None


def _act_after(loader: Any, action: Callable[[ModuleType], None]) -> None:
    original = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        # The loader stays in the module's spec: leave it as it was found.
        del loader.exec_module
        original(module)
        action(module)

    loader.exec_module = exec_module
