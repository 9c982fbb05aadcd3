"""Keeps warnings that torch's C++ code raises where they would be without a function mode.

Such a warning names the Python frame that called into C++. With our mode in between, that is the
mode's own frame, and the filters would judge the wrong module and line. So a filter of ours, kept
first in the list, lets it through to a hook, which issues it again for the mode's caller.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

from onegraph.recorder import mode
from onegraph.recorder.frames import forget

_FILTER = ("always", None, Warning, re.compile(re.escape(mode.__name__) + "$"), 0)
# Python calls one of these, by the version, whenever the list of filters has changed.
_CHANGED = ("_filters_mutated", "_filters_mutated_lock_held")


class WarningPlaces:
    """Puts warnings back in their place while installed."""

    def __init__(self) -> None:
        self._undo: list[tuple[str, Any, Any]] = []

    def install(self) -> None:
        """Let warnings that name the mode through, up to the hook that moves them."""
        for name in _CHANGED:
            if name in vars(warnings):
                self._replace(name, _then_first(vars(warnings)[name]))
        self._replace("_showwarnmsg", _moved(vars(warnings)["_showwarnmsg"]))
        # Not announced to Python: it would forget which warnings it has shown.
        _put_first()

    def remove(self) -> None:
        """Undo `install`."""
        while self._undo:
            name, original, wrapper = self._undo.pop()
            if vars(warnings)[name] is wrapper:
                vars(warnings)[name] = original
        if _FILTER in warnings.filters:
            warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]

    def _replace(self, name: str, wrapper: Any) -> None:
        self._undo.append((name, vars(warnings)[name], wrapper))
        vars(warnings)[name] = wrapper


def _put_first() -> None:
    filters: Any = warnings.filters
    if not filters or filters[0] is not _FILTER:
        filters[:] = [_FILTER, *(f for f in filters if f is not _FILTER)]


def _then_first(changed: Any) -> Any:
    def filters_mutated() -> None:
        changed()
        _put_first()

    return filters_mutated


def _moved(show: Any) -> Any:
    def showwarnmsg(message: Any) -> None:
        frame = sys._getframe(1)
        if frame.f_globals is not vars(mode) or frame.f_back is None:
            show(message)
            return
        frame = frame.f_back
        names = frame.f_globals
        try:
            warnings.warn_explicit(
                message.message,
                message.category,
                frame.f_code.co_filename,
                frame.f_lineno,
                module=names.get("__name__") or "<string>",
                registry=names.setdefault("__warningregistry__", {}),
                source=message.source,
            )
        except BaseException as error:
            # A filter made an exception of it.
            forget(error)
            raise

    return showwarnmsg
