"""Lets Python's debugger, and those built on it, step as if our frames were not there."""

from __future__ import annotations

import functools
import os
from types import FrameType, ModuleType
from typing import Any

from onegraph.recorder.frames import is_launch, is_ours

_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = os.path.join(_STDLIB, "site-packages") + os.sep


def replacements(bdb: ModuleType) -> dict[str, Any]:
    """Methods for ``bdb.Bdb`` that neither stop in our frames nor show them."""
    original_stop, original_stack = bdb.Bdb.stop_here, bdb.Bdb.get_stack

    @functools.wraps(original_stop)
    def stop_here(debugger: Any, frame: FrameType) -> bool:
        return not _at_work(frame) and bool(original_stop(debugger, frame))

    @functools.wraps(original_stack)
    def get_stack(debugger: Any, frame: FrameType | None, traceback: Any) -> Any:
        stack, at = original_stack(debugger, frame, traceback)
        files = [entry[0].f_code.co_filename for entry in stack]
        launch = max((k for k, file in enumerate(files) if is_launch(file)), default=-1)
        kept = [k for k in range(launch + 1, len(stack)) if not is_ours(files[k])]
        return [stack[k] for k in kept], max(0, sum(k <= at for k in kept) - 1)

    return {"stop_here": stop_here, "get_stack": get_stack}


def _at_work(frame: FrameType | None) -> bool:
    """Whether a frame is ours, or the standard library's in our service."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_ours(file):
            return True
        if not file.startswith((_STDLIB, "<frozen ")) or file.startswith(_INSTALLED):
            return False
        frame = frame.f_back
    return False
