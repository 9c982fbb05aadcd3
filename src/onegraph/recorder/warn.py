"""Keeps Python warnings where they would be without a function mode.

A warning names the frame some levels above the one that warns. With a mode in between, that
frame is one of ours or of torch's dispatch to us; the filters would then judge the wrong module
and line. Such a warning is let through and issued again at the frame it was meant for.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from types import FrameType
from typing import Any

from torch import overrides

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_OVERRIDES = overrides.__file__
_FILTER = (
    "always",
    None,
    Warning,
    re.compile(r"onegraph\.recorder\.|torch\.overrides$"),
    0,
)


class WarningPlaces:
    """Puts warnings back in their place while installed."""

    def __init__(self) -> None:
        self._original: Any = None

    def install(self) -> None:
        """Let warnings that name our frames through, up to the hook that moves them."""
        self._original = warnings._showwarnmsg  # type: ignore[attr-defined]
        warnings.filters.insert(0, _FILTER)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]
        warnings._showwarnmsg = self._show  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Undo `install`."""
        if warnings._showwarnmsg == self._show:  # type: ignore[attr-defined]
            warnings._showwarnmsg = self._original  # type: ignore[attr-defined]
        if _FILTER in warnings.filters:
            warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    def _show(self, message: Any) -> None:
        frame = _meant(sys._getframe(1), message.filename, message.lineno)
        if frame is None:
            self._original(message)
            return
        # "once" remembers the text for the whole process: the first try must not count.
        once = getattr(warnings, "onceregistry", {})
        once.pop((str(message.message), message.category), None)
        scope = frame.f_globals
        if scope.get("__name__") in ("torch.overrides",):
            scope.pop("__warningregistry__", None)
        warnings.warn_explicit(
            message.message,
            message.category,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=scope.get("__name__") or "<unknown>",
            registry=scope.setdefault("__warningregistry__", {}),
            module_globals=scope,
            source=message.source,
        )


def _meant(frame: FrameType | None, filename: str, lineno: int) -> FrameType | None:
    """The frame that a warning would have named without us, None when it named the right one."""
    if not (filename.startswith(_HERE) or filename == _OVERRIDES):
        return None
    level: int | None = None
    real: list[FrameType] = []
    position = frame
    while position is not None:
        real.append(position)
        position = position.f_back
    for at, candidate in enumerate(real):
        if candidate.f_code.co_filename == filename and candidate.f_lineno == lineno:
            level = at
            break
    if level is None:
        return None
    if not any(f.f_code.co_filename.startswith(_HERE) for f in real[: level + 1]):
        return None
    bare = _without_us(real)
    return bare[level] if level < len(bare) else bare[-1]


def _without_us(frames: list[FrameType]) -> list[FrameType]:
    """The stack, innermost first, as it would be without our frames and torch's dispatch to us."""
    bare = []
    skip = 0
    for at, frame in enumerate(frames):
        if skip:
            skip -= 1
            continue
        if frame.f_code.co_filename.startswith(_HERE):
            following = frames[at + 1] if at + 1 < len(frames) else None
            if following is not None and following.f_code.co_filename == _OVERRIDES:
                # A Python function of torch asked for the dispatch: it is on the stack twice.
                skip = 2
            continue
        bare.append(frame)
    return bare
