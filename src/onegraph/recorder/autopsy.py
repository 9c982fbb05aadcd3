"""What can be read off the graph and the live frames when something raised, as a `Trace`.

The reading happens in a forked child. Walking a graph gives each of its nodes a Python object,
and such a graph is later destroyed recursively, which can end the process; reading saved tensors
may run the user's code. A child takes all of that with it when it ends.
"""

from __future__ import annotations

import contextlib
import gc
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
from typing import Any, TypeVar

import torch
from torch.autograd.graph import GradientEdge

from onegraph.recorder import torchapi
from onegraph.recorder.examination import Examination, keep_all, library_name
from onegraph.recorder.names import Names, parameter_names
from onegraph.recorder.overwritten import overwritten
from onegraph.recorder.session import Recorder
from onegraph.recorder.sites import LAUNCHER, UserFiles
from onegraph.recorder.sources import Places
from onegraph.recorder.walk import StateReader
from onegraph.trace import State, Trace, messages

T = TypeVar("T")

TIMEOUT_S = 60.0
# Without a forked child the graph must stay small enough to be destroyed recursively.
LIMIT_IN_PROCESS = 10_000


def of_engine_failure(
    recorder: Recorder,
    ordinal: int,
    error: BaseException,
    outputs: Sequence[Any],
    inputs: Sequence[Any] = (),
) -> Trace | None:
    """The trace of an engine call that is raising just now; None when it cannot be had."""
    frames = live_frames(sys._getframe(1))
    roots = [o.node if isinstance(o, GradientEdge) else o.grad_fn for o in outputs]
    kind, message = type(error).__name__, torchapi.message_of(error)

    def build(limit: int | None) -> Trace:
        examination = Examination(recorder, roots, frames, ordinal, limit)
        failure = examination.engine_failure(kind, message)
        symptom = messages.symptom_of(message)
        if symptom == messages.CHANGED:
            failure = replace(failure, overwritten=overwritten(examination, message))
        elif symptom == messages.NO_GRAD:
            lost = [o for o, root in zip(outputs, roots, strict=True) if root is None]
            cut = examination.cut(next(iter(recorder.cuts.origins(lost)), None))
            failure = replace(failure, names=examination.names_of(lost[:1]), cut=cut)
        elif symptom == messages.UNUSED:
            unused = [i for i in inputs if not examination.reaches(i)]
            failure = replace(failure, names=examination.names_of(unused[:1]))
        return examination.trace(failure)

    return in_child(build)


def of_saved_access(
    recorder: Recorder, error: BaseException, traceback: TracebackType
) -> Trace | None:
    """The trace of an exception raised by reading a saved tensor that was freed."""
    frames, chain = _user_chain(recorder, traceback)
    if not chain:
        return None
    kind, message = type(error).__name__, torchapi.message_of(error)

    outputs = _engine_outputs(traceback)
    if outputs is not None:
        # Nothing was recorded when it raised, but the traceback still holds where it started.
        roots = [o.node if isinstance(o, GradientEdge) else o.grad_fn for o in outputs]

        def build_engine(limit: int | None) -> Trace | None:
            examination = Examination(recorder, roots, frames, recorder.ordinal + 1, limit)
            failure = examination.access_failure(kind, message, chain, "")
            return examination.trace(replace(failure, kind="engine", raising=None, owner=None))

        return in_child(build_engine)

    def build(limit: int | None) -> Trace | None:
        names = Names(frames, recorder.users)
        expression = Places(recorder.sites, recorder.folder, recorder.texts).site(chain).code
        found = _node_of(expression, names)
        if found is None:
            return None
        owner, node = found
        examination = Examination(recorder, [node], frames, recorder.ordinal + 1, limit, names)
        return examination.trace(examination.access_failure(kind, message, chain, owner))

    return in_child(build)


def of_operation(
    recorder: Recorder, error: BaseException, traceback: TracebackType
) -> Trace | None:
    """The trace of an operation that torch refused, or that met the None of a missing gradient."""
    frames, chain = _user_chain(recorder, traceback)
    if not chain:
        return None
    kind, message = type(error).__name__, torchapi.message_of(error)
    innermost = traceback
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    refused = innermost.tb_frame
    library = refused.f_code.co_filename
    symptom = messages.symptom_of(message)
    read = None
    if symptom == messages.NONLEAF_GRAD:
        read = _grad_read(recorder, chain[0][0])
        if read is None:
            return None

    def build(limit: int | None) -> Trace | None:
        held: list[Any] = []
        if symptom == messages.NONLEAF_OPTIMIZER:
            held = _tensors_of(refused)
        roots = [tensor.grad_fn for tensor in held]
        examination = Examination(recorder, roots, frames, recorder.ordinal + 1, limit)
        failure = examination.operation_failure(kind, message, chain)
        if not recorder.users[library]:
            failure = replace(failure, library=library_name(library))
        names = examination.names_of(held[:1])
        made = examination.made_by(read[1]) if read is not None else None
        if examination.walk.roots:
            made = examination.graph.site[examination.walk.roots[0]]
        return examination.trace(
            replace(failure, names=names, made=made if made is not None and made >= 0 else None)
        )

    return in_child(build)


def _grad_read(recorder: Recorder, code: Any) -> tuple[int, int] | None:
    """The last read in a function of a gradient that its tensor does not keep."""
    for site, number in reversed(recorder.grad_reads):
        if any(one is code for one, _ in recorder.sites.chains[site][:1]):
            return site, number
    return None


def _tensors_of(frame: FrameType) -> list[Any]:
    """The tensors with history among a frame's variables and their direct parts."""
    found = []
    for value in frame.f_locals.values():
        parts = [value]
        if isinstance(value, dict):
            parts = list(value.get("params", ()))
        found += [p for p in parts if isinstance(p, torch.Tensor) and p.grad_fn is not None]
    return found


def _user_chain(
    recorder: Recorder, traceback: TracebackType
) -> tuple[list[FrameType], tuple[tuple[Any, int], ...]]:
    """The user's frames of a traceback, innermost first, and where each stands."""
    frames: list[FrameType] = []
    chain: list[tuple[Any, int]] = []
    position: TracebackType | None = traceback
    while position is not None:
        code = position.tb_frame.f_code
        if recorder.users[code.co_filename]:
            frames.insert(0, position.tb_frame)
            chain.insert(0, (code, position.tb_lasti))
        position = position.tb_next
    return frames, tuple(chain)


def of_the_end(recorder: Recorder) -> Trace | None:
    """The trace of a program that ran to its end."""

    def build(limit: int | None) -> Trace:
        names = Names([], recorder.users)
        return Examination(recorder, [], [], recorder.ordinal + 1, limit, names).trace(None)

    with torchapi.unseen():
        recorder.finish()
        return in_child(build)


def parameters_now(users: UserFiles, frame: FrameType | None, wanted: set[int]) -> dict[int, str]:
    """The names of some parameters and other leaves, by their ids."""

    def build(_: int | None) -> dict[int, str]:
        names = Names([f for f in live_frames(frame) if users[f.f_code.co_filename]], users)
        return {k: name for k, name in parameter_names(names).items() if k in wanted}

    return in_child(build) or {}


def _engine_outputs(traceback: TracebackType | None) -> Sequence[Any] | None:
    """What an engine call in the traceback was started from."""
    found = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "_engine_run_backward":
            found = traceback.tb_frame.f_locals.get("t_outputs")
        traceback = traceback.tb_next
    return found


def live_frames(frame: FrameType | None) -> list[FrameType]:
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


def in_child(build: Callable[[int | None], T | None]) -> T | None:
    """Run ``build`` in a forked child and bring here what it makes, a plain value.

    It is given the number of nodes it may walk, None for no bound.
    """
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
            gc.disable()
            keep_all()
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
