"""The few places of torch and Python that are wrapped while recording, each with its reason.

Every wrapper passes straight through when no recorder is active, since a program may have kept a
reference to it; `remove` puts the originals back.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from onegraph.recorder import debugger, torchapi
from onegraph.recorder.frames import forget, uncounted, without_ours
from onegraph.recorder.imports import AfterImport
from onegraph.recorder.mode import retire
from onegraph.recorder.questions import Questions
from onegraph.recorder.regions import Regions
from onegraph.recorder.session import Recorder
from onegraph.recorder.tape import Tape


class Patches:
    """Installs the wrappers for one recorder and takes them out again."""

    def __init__(self, recorder: Recorder, failed: Callable[..., None]) -> None:
        self.recorder = recorder
        self.failed = failed
        # (home, name, original, wrapper), to be undone newest first.
        self._undo: list[tuple[Any, str, Any, Any]] = []
        # Those of them that compilers would read or trace, hidden from them.
        self._hidden: list[tuple[Any, str, Any, Any]] = []
        self._then: list[Callable[[], None]] = []
        self._questions = Questions(recorder, self._tape)
        self._regions = Regions(recorder, self._tape, self._show_originals)

    def install(self) -> None:
        """Wrap what the recorder needs; with ``lines`` off that is the engine alone."""
        while _waiting:
            # Ours let the threads go that theirs wait for.
            _waiting.pop()._restore()
        for home in torchapi.engine_homes():
            self._replace(home, "_engine_run_backward", self._engine(home._engine_run_backward))
        if not self.recorder.lines:
            return
        engine = len(self._undo)
        if torchapi.base_apply is not None:
            # Function.apply ends in super().apply, whatever name the program calls it by.
            noted: Any = classmethod(self._noted(torchapi.base_apply))
            self._replace(torchapi.function_base, "apply", noted)
        for home, name in torchapi.unseen_makers():
            self._replace(home, name, self._noted(vars(home)[name]))
        self._hidden = self._undo[engine:]
        for home, name in torchapi.tracers():
            self._replace(home, name, self._regions.tracer(vars(home)[name]))
        self._questions.answer()
        self._replace(
            threading.Thread,
            "_bootstrap_inner",
            self._thread(threading.Thread._bootstrap_inner),  # type: ignore[attr-defined]
        )
        finder = AfterImport(
            {
                "torch._dynamo.eval_frame": self._patch_dynamo,
                "torch.fx.traceback": self._patch_stacks,
                "bdb": self._patch_debugger,
            }
        )
        finder.install()
        self._then.append(finder.remove)
        _at_fork(self)

    def remove(self) -> None:
        """Put every original back.

        A mode can be taken off a thread by that thread alone. While others have one, it does
        nothing, and the wrappers stay until each has taken its own off, at its next call. A thread
        that made no node, such as one that only watches, is not waited for.
        """
        _forget_ended_threads(self.recorder)
        for tape in self.recorder.tapes.values():
            retire(tape.mode)
        if any(tape.entries or len(tape.bases) for tape in self.recorder.tapes.values()):
            _left_behind.append(self.recorder)
        if _left_behind:
            _waiting.append(self)
        else:
            self._restore()

    def _restore(self) -> None:
        self._questions.leave()
        while self._then:
            self._then.pop()()
        while self._undo:
            home, name, original, wrapper = self._undo.pop()
            # Where somebody has since wrapped our wrapper, it stays and passes through.
            if vars(home).get(name, _ABSENT) is wrapper:
                _set(home, name, original)

    def _replace(self, home: Any, name: str, wrapper: Any) -> None:
        self._undo.append((home, name, vars(home).get(name, _ABSENT), wrapper))
        setattr(home, name, wrapper)

    def _tape(self) -> Tape | None:
        """This thread's tape while recording."""
        if _left_behind:
            _let_go()
        return self.recorder.tape() if self.recorder.active else None

    # -- the engine: the mode is off while it runs, so hooks and recomputation go unseen ---------

    def _engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder, failed = self.recorder, self.failed
        number = torchapi.sequence_number

        @functools.wraps(original)
        @uncounted
        def _engine_run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            tape = self._tape()
            if not recorder.active or self._regions.compiles():
                return original(t_outputs, *args, **kwargs)
            try:
                with torchapi.unseen():
                    ordinal = recorder.begin(t_outputs, args, kwargs)
            except Exception as fault:
                # A fault of ours is not to become one of the program.
                recorder.fault(fault)
                return original(t_outputs, *args, **kwargs)
            if tape is not None and tape.suspended is not None:
                tape = None
            before = number() if number is not None else 0
            mode = None
            if tape is not None and not any(m is tape.mode for m in torchapi.modes()):
                mode = tape.mode
                torchapi.push_mode(mode)
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                with torchapi.unseen():
                    failed(ordinal, error, t_outputs, _inputs(args, kwargs))
                forget(error)
                raise
            finally:
                if mode is not None:
                    torchapi.remove_mode(mode)
                after = number() if number is not None else 0
                # Otherwise only hooks and recomputation make nodes, and each is seen by itself.
                creates = args[2] if len(args) > 2 else kwargs.get("create_graph")
                if tape is not None and after != before and creates and recorder.active:
                    recorder.note(tape, before, after, 2)
                recorder.end(ordinal)

        return _engine_run_backward

    # -- what makes nodes but does not pass through a function mode --------------------------------

    def _noted(self, original: Any) -> Any:
        recorder = self.recorder
        number = torchapi.sequence_number

        @functools.wraps(original)
        @uncounted
        def noted(*args: Any, **kwargs: Any) -> Any:
            tape = self._tape()
            before = number() if number is not None else 0
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                forget(error)
                raise
            if tape is not None and tape.suspended is None and number is not None:
                after = number()
                if after != before:
                    recorder.note(tape, before, after, 2)
            return result

        return noted

    # -- what is patched once it is imported ------------------------------------------------------

    def _patch_dynamo(self, module: ModuleType) -> None:
        original = getattr(module, "_maybe_set_eval_frame", None)
        if original is None:
            self.recorder.blind.append("torch.compile: this torch switches Dynamo in another way")
        else:
            self._replace(module, "_maybe_set_eval_frame", self._regions.dynamo(original))

    def _patch_stacks(self, module: ModuleType) -> None:
        """Anomaly mode notes the stack of each forward call, and prints it."""
        original = getattr(module, "format_stack", None)
        if original is not None:
            self._replace(module, "format_stack", lambda: without_ours(original()))

    def _patch_debugger(self, module: ModuleType) -> None:
        for name, method in debugger.replacements(module).items():
            self._replace(module.Bdb, name, method)

    def _show_originals(self, originals: bool) -> None:
        self._questions.show(originals)
        for home, name, original, wrapper in self._hidden:
            now, then = (wrapper, original) if originals else (original, wrapper)
            if vars(home).get(name, _ABSENT) is now:
                _set(home, name, then)

    # -- the mode and the counter belong to one thread each ---------------------------------------

    def _thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        @functools.wraps(original)
        @uncounted
        def _bootstrap_inner(thread: threading.Thread) -> Any:
            if not recorder.active:
                return original(thread)
            tape = recorder.enter_thread()
            mode = tape.mode if tape is not None else None
            try:
                return original(thread)
            finally:
                recorder.leave_thread()
                if mode is not None:
                    # A class is a cycle of references: what it refers to is not to wait for gc.
                    retire(mode)
                if _left_behind:
                    _let_go()

        return _bootstrap_inner


def _inputs(args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
    """What an engine call was to differentiate by, empty for all leaves."""
    inputs = args[3] if len(args) > 3 else kwargs.get("inputs", ())
    return inputs if isinstance(inputs, (tuple, list)) else ()


_ABSENT: Any = object()


def _set(home: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(home, name)
    else:
        setattr(home, name, value)


# Recorders that are stopped but still on some thread, and the patches that stay for their sake.
_left_behind: list[Recorder] = []
_waiting: list[Patches] = []


def _forget_ended_threads(recorder: Recorder) -> None:
    running = sys._current_frames()
    for thread in [t for t in recorder.tapes if t not in running]:
        recorder.tapes.pop(thread, None)


def _let_go() -> None:
    """Take the modes of stopped recorders off the calling thread."""
    for recorder in list(_left_behind):
        _forget_ended_threads(recorder)
        tape = recorder.tape()
        if tape is not None and (tape.suspended is not None or tape.mode in torchapi.modes()):
            recorder.leave_thread()
        if not recorder.tapes and recorder in _left_behind:
            _left_behind.remove(recorder)
    while _waiting and not _left_behind:
        _waiting.pop()._restore()


_forked: list[Patches] = []


def _at_fork(patches: Patches) -> None:
    """Drop the recording in forked children: a data loader's worker is not the program."""
    if not _forked and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)
    _forked[:] = [patches]


def _in_child() -> None:
    for patches in _forked:
        recorder = patches.recorder
        if recorder.active:
            recorder.active = False
            # The tapes stay: an autopsy is such a child, and reads them.
            recorder.leave_thread()
            _left_behind.clear()
            patches._restore()
