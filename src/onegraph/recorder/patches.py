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

import torch.overrides
from torch.autograd.function import Function

from onegraph.recorder import torchapi
from onegraph.recorder.imports import AfterImport
from onegraph.recorder.session import Recorder


class Patches:
    """Installs the wrappers for one recorder and takes them out again."""

    def __init__(self, recorder: Recorder, failed: Callable[..., None]) -> None:
        self.recorder = recorder
        self.failed = failed
        self._undo: list[tuple[Any, str, Any]] = []
        self._finder: AfterImport | None = None
        self._compiling = 0
        self._hidden_from_compilers: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Wrap what the recorder needs; with ``lines`` off that is the engine alone."""
        for home in torchapi.engine_homes():
            self._replace(home, "_engine_run_backward", self._engine(home._engine_run_backward))
        if not self.recorder.lines:
            return
        if "apply" in vars(Function):
            self._replace(Function, "apply", self._apply(vars(Function)["apply"].__func__))
        self._replace(
            torch.overrides, "has_torch_function", self._asks(torch.overrides.has_torch_function)
        )
        self._hidden_from_compilers = [
            (home, name, original, vars(home)[name])
            for home, name, original in self._undo
            if home in (Function, torch.overrides)
        ]
        self._replace(
            threading.Thread,
            "_bootstrap_inner",
            self._thread(threading.Thread._bootstrap_inner),  # type: ignore[attr-defined]
        )
        self._finder = AfterImport(
            {
                "torch._dynamo.eval_frame": self._patch_dynamo,
                "torch.jit._script": self._patch_script,
            }
        )
        self._finder.install()
        _at_fork(self.recorder)

    def remove(self) -> None:
        """Put every original back, newest first."""
        if self._finder is not None:
            self._finder.remove()
            self._finder = None
        while self._undo:
            home, name, original = self._undo.pop()
            setattr(home, name, original)

    def _replace(self, home: Any, name: str, wrapper: Any) -> None:
        self._undo.append((home, name, vars(home)[name]))
        setattr(home, name, wrapper)

    # -- the engine: the mode is off while it runs, so hooks and recomputation go unseen ---------

    def _engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder, failed = self.recorder, self.failed

        @functools.wraps(original)
        def _engine_run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            if not recorder.active:
                return original(t_outputs, *args, **kwargs)
            ordinal = recorder.begin(t_outputs, args, kwargs)
            tape = recorder.tape()
            mode = None
            before = 0
            if tape is not None and tape.suspended is None:
                mode = tape.mode
                assert torchapi.sequence_number is not None
                before = torchapi.sequence_number()
                if any(m is mode for m in torchapi.modes()):
                    mode = None
                else:
                    torchapi.push_mode(mode)
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                failed(ordinal, error, t_outputs)
                raise
            finally:
                if mode is not None:
                    torchapi.remove_mode(mode)
                if tape is not None and torchapi.sequence_number is not None:
                    after = torchapi.sequence_number()
                    if after != before and recorder.active:
                        recorder.note(tape, before, after, 2)
                recorder.end(ordinal)

        return _engine_run_backward

    # -- custom Functions do not pass through a function mode -------------------------------------

    def _apply(self, original: Callable[..., Any]) -> Any:
        recorder = self.recorder

        @functools.wraps(original)
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            tape = recorder.tape() if recorder.active else None
            if tape is None or tape.suspended is not None:
                return original(cls, *args, **kwargs)
            assert torchapi.sequence_number is not None
            before = torchapi.sequence_number()
            result = original(cls, *args, **kwargs)
            after = torchapi.sequence_number()
            if after != before:
                recorder.note(tape, before, after, 2)
            return result

        return classmethod(apply)

    # -- attention's fast path asks whether anybody watches; the answer must not be us -----------

    def _asks(self, original: Callable[..., bool]) -> Callable[..., bool]:
        recorder = self.recorder

        @functools.wraps(original)
        def has_torch_function(relevant_args: Any) -> bool:
            tape = recorder.tape() if recorder.active else None
            above = None if tape is None else torchapi.remove_mode(tape.mode)
            if tape is None or above is None:
                return original(relevant_args)
            try:
                return original(relevant_args)
            finally:
                torchapi.insert_mode(tape.mode, above)

        return has_torch_function

    # -- compiled code guards on the mode: set it aside wherever Dynamo is switched on ------------

    def _patch_dynamo(self, module: ModuleType) -> None:
        original = getattr(module, "_maybe_set_eval_frame", None)
        if original is None:
            self.recorder.blind.append("torch.compile: this torch switches Dynamo in another way")
            return
        recorder = self.recorder
        number = torchapi.sequence_number
        assert number is not None

        @functools.wraps(original)
        def _maybe_set_eval_frame(callback: Any) -> Any:
            tape = recorder.tape() if recorder.active else None
            if tape is None or tape.mode is None:
                return original(callback)
            caller = sys._getframe(1)
            if tape.suspended is None:
                # Calls from `__enter__` are left alone: their end comes from another frame.
                if callback is not None and caller.f_code.co_name != "__enter__":
                    tape.suspended = torchapi.remove_mode(tape.mode)
                    if tape.suspended is not None:
                        tape.paused_by, tape.paused_at = id(caller), number()
                        self._compiling_begins()
                return original(callback)
            result = original(callback)
            if callback is None and tape.paused_by == id(caller):
                # The call that began the region ends it. While it compiles, Dynamo is off and on
                # many times. What the region made belongs to the line that called it.
                above, tape.suspended = tape.suspended, None
                self._compiling_ends()
                after = number()
                if after != tape.paused_at:
                    recorder.note(tape, tape.paused_at, after, 2)
                torchapi.insert_mode(tape.mode, above)
            return result

        self._replace(module, "_maybe_set_eval_frame", _maybe_set_eval_frame)

    def _compiling_begins(self) -> None:
        """Show torch's own functions to a compiler that reads them."""
        self._compiling += 1
        if self._compiling == 1:
            for home, name, original, _ in self._hidden_from_compilers:
                setattr(home, name, original)

    def _compiling_ends(self) -> None:
        self._compiling -= 1
        if self._compiling == 0:
            for home, name, _, wrapper in self._hidden_from_compilers:
                setattr(home, name, wrapper)

    # -- TorchScript compiles the source of what it finds, which must be torch's own --------------

    def _patch_script(self, module: ModuleType) -> None:
        original = getattr(module, "_script_impl", None)
        if original is None:
            self.recorder.blind.append("torch.jit.script: modules with attention may not compile")
            return

        @functools.wraps(original)
        def _script_impl(*args: Any, **kwargs: Any) -> Any:
            if not self.recorder.active:
                return original(*args, **kwargs)
            self._compiling_begins()
            try:
                return original(*args, **kwargs)
            finally:
                self._compiling_ends()

        self._replace(module, "_script_impl", _script_impl)

    # -- the mode and the counter belong to one thread each ---------------------------------------

    def _thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        @functools.wraps(original)
        def _bootstrap_inner(thread: threading.Thread) -> Any:
            if not recorder.active:
                return original(thread)
            recorder.enter_thread()
            try:
                return original(thread)
            finally:
                recorder.leave_thread()

        return _bootstrap_inner


_forked: list[Recorder] = []


def _at_fork(recorder: Recorder) -> None:
    """Drop the recording in forked children: a data loader's worker is not the program."""
    if not _forked and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)
    _forked[:] = [recorder]


def _in_child() -> None:
    for recorder in _forked:
        if recorder.active:
            recorder.active = False
            tape = recorder.tape()
            if tape is not None and tape.mode is not None:
                torchapi.remove_mode(tape.mode)
