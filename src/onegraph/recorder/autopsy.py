"""What can be read off the graph and the live frames when something raised, as a `Trace`.

The reading happens in a forked child. Walking a graph gives each of its nodes a Python object,
and such a graph is later destroyed recursively, which can end the process; reading saved tensors
may run the user's code. A child takes all of that with it when it ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any

from torch.autograd.graph import GradientEdge

from onegraph.recorder import torchapi
from onegraph.recorder.examination import Examination
from onegraph.recorder.names import Names
from onegraph.recorder.overwritten import overwritten
from onegraph.recorder.session import Recorder
from onegraph.recorder.sites import LAUNCHER
from onegraph.recorder.sources import Places
from onegraph.recorder.walk import StateReader
from onegraph.trace import State, Trace

TIMEOUT_S = 60.0
# Without a forked child the graph must stay small enough to be destroyed recursively.
LIMIT_IN_PROCESS = 10_000


def of_engine_failure(
    recorder: Recorder, ordinal: int, error: BaseException, outputs: Sequence[Any]
) -> Trace | None:
    """The trace of an engine call that is raising just now; None when it cannot be had."""
    frames = _live_frames(sys._getframe(1))
    roots = [o.node if isinstance(o, GradientEdge) else o.grad_fn for o in outputs]
    kind, message = type(error).__name__, torchapi.message_of(error)

    def build(limit: int | None) -> Trace:
        examination = Examination(recorder, roots, frames, ordinal, limit)
        failure = examination.engine_failure(kind, message)
        if torchapi.CHANGED_MARK in message:
            failure = replace(failure, overwritten=overwritten(examination, message))
        return examination.trace(failure)

    return _in_child(build)


def of_saved_access(
    recorder: Recorder, error: BaseException, traceback: TracebackType
) -> Trace | None:
    """The trace of an exception raised by reading a saved tensor that was freed."""
    frames: list[FrameType] = []
    position: TracebackType | None = traceback
    innermost: tuple[Any, int] | None = None
    while position is not None:
        code = position.tb_frame.f_code
        if recorder.users[code.co_filename]:
            frames.insert(0, position.tb_frame)
            innermost = (code, position.tb_lasti)
        position = position.tb_next
    if innermost is None:
        return None
    chain = (innermost, *[(f.f_code, f.f_lasti) for f in frames[1:]])
    kind, message = type(error).__name__, torchapi.message_of(error)

    outputs = _engine_outputs(traceback)
    if outputs is not None:
        # Nothing was recorded when it raised, but the traceback still holds where it started.
        roots = [o.node if isinstance(o, GradientEdge) else o.grad_fn for o in outputs]

        def build_engine(limit: int | None) -> Trace | None:
            examination = Examination(recorder, roots, frames, recorder.ordinal + 1, limit)
            failure = examination.access_failure(kind, message, chain, "")
            return examination.trace(replace(failure, kind="engine", raising=None, owner=None))

        return _in_child(build_engine)

    def build(limit: int | None) -> Trace | None:
        names = Names(frames, recorder.users)
        expression = Places(recorder.sites, recorder.folder, recorder.texts).site(chain).code
        found = _node_of(expression, names)
        if found is None:
            return None
        owner, node = found
        examination = Examination(recorder, [node], frames, recorder.ordinal + 1, limit, names)
        return examination.trace(examination.access_failure(kind, message, chain, owner))

    return _in_child(build)


def of_nothing(recorder: Recorder) -> Trace:
    """The trace of a program that ran to its end."""
    examination = Examination(recorder, [], [], recorder.ordinal + 1, None, Names([], _NOBODY))
    return examination.trace(None)


class _Nobody(dict[str, bool]):
    def __missing__(self, key: str) -> bool:
        return False


_NOBODY: Any = _Nobody()


def _engine_outputs(traceback: TracebackType | None) -> Sequence[Any] | None:
    """What an engine call in the traceback was started from."""
    found = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "_engine_run_backward":
            found = traceback.tb_frame.f_locals.get("t_outputs")
        traceback = traceback.tb_next
    return found


def _live_frames(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None and frame.f_code.co_filename != LAUNCHER:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _node_of(expression: str, names: Names) -> tuple[str, Any] | None:
    """(name, node) of the graph node whose saved tensor the expression reads."""
    owner = re.sub(r"\.(_raw)?_?saved_\w+.*$", "", expression, flags=re.DOTALL).strip()
    candidates: dict[str, tuple[str, Any]] = {}
    for found in names.nodes:
        candidates.setdefault(found.name, (found.name, found.value))
    for found in names.tensors:
        if found.value.grad_fn is not None:
            held = (found.name, found.value.grad_fn)
            candidates.setdefault(f"{found.name}.grad_fn", held)
    if owner in candidates:
        return candidates[owner]
    freed = [held for held in candidates.values() if StateReader(held[1])(held[1]) is State.FREED]
    last = owner.rpartition(".")[2]
    for held in freed:
        if held[0].rpartition(".")[2] == last:
            return held
    return freed[0] if len({id(node) for _, node in freed}) == 1 else None


def _in_child(build: Callable[[int | None], Trace | None]) -> Trace | None:
    """Run ``build`` in a forked child and bring its trace here."""
    if not hasattr(os, "fork"):
        return build(LIMIT_IN_PROCESS)
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # 3.12 warns about forking with threads; the child only reads and leaves.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read_end)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            data = pickle.dumps(build(None), protocol=pickle.HIGHEST_PROTOCOL)
            view = memoryview(data)
            while view:
                view = view[os.write(write_end, view) :]
            status = 0
        except BaseException:
            if os.environ.get("ONEGRAPH_DEBUG"):
                import traceback

                traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write_end)
    try:
        data = _receive(read_end, child)
    finally:
        os.close(read_end)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    # Only what our own child wrote is read here.
    return pickle.loads(data) if data else None


def _receive(read_end: int, child: int) -> bytes:
    parts: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        ready, _, _ = select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return b""
        part = os.read(read_end, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
