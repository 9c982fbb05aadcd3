"""The few places of torch and Python that are wrapped while recording, each with its reason.

Every wrapper passes straight through when no recorder is active, since a program may have kept a
reference to it; `remove` puts the originals back.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from onegraph.recorder import debugger, torchapi
from onegraph.recorder.frames import forget, uncounted, without_ours
from onegraph.recorder.imports import AfterImport
from onegraph.recorder.mode import Recording, retire
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
        # Threads in compiled code, with the frame that switched Dynamo on.
        self._regions: dict[int, int] = {}
        self._lock = threading.Lock()

    def install(self) -> None:
        """Wrap what the recorder needs; with ``lines`` off that is the engine alone."""
        for home in torchapi.engine_homes():
            self._replace(home, "_engine_run_backward", self._engine(home._engine_run_backward))
        if not self.recorder.lines:
            return
        engine = len(self._undo)
        if torchapi.base_apply is not None:
            # Function.apply ends in super().apply, whatever name the program calls it by.
            noted = classmethod(self._noted(torchapi.base_apply))
            self._replace(torchapi.function_base, "apply", noted)
        for home, name in torchapi.unseen_makers():
            self._replace(home, name, self._noted(vars(home)[name]))
        self._hidden = self._undo[engine:]
        self._questions.answer()
        self._replace(
            threading.Thread,
            "_bootstrap_inner",
            self._thread(threading.Thread._bootstrap_inner),  # type: ignore[attr-defined]
        )
        finder = AfterImport(
            {
                "torch._dynamo.eval_frame": self._patch_dynamo,
                "torch.jit": self._patch_trace,
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
        nothing, and the wrappers stay until each has taken its own off, at its next call.
        """
        if self.recorder.tapes:
            for tape in self.recorder.tapes.values():
                retire(tape.mode)
            return
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
        """This thread's tape while recording; afterwards the thread lets go of its mode."""
        recorder = self.recorder
        if recorder.active:
            return recorder.tape()
        if recorder.tapes and recorder.tape() is not None:
            recorder.leave_thread()
            self.remove()
        return None

    # -- the engine: the mode is off while it runs, so hooks and recomputation go unseen ---------

    def _engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder, failed = self.recorder, self.failed
        number = torchapi.sequence_number

        @functools.wraps(original)
        @uncounted
        def _engine_run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            tape = self._tape()
            if not recorder.active or self._compiles():
                return original(t_outputs, *args, **kwargs)
            with torchapi.unseen():
                ordinal = recorder.begin(t_outputs, args, kwargs)
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
                    failed(ordinal, error, t_outputs)
                forget(error)
                raise
            finally:
                if mode is not None:
                    torchapi.remove_mode(mode)
                after = number() if number is not None else 0
                if tape is not None and after != before and recorder.active:
                    recorder.note(tape, before, after, 2)
                recorder.end(ordinal)

        return _engine_run_backward

    def _compiles(self) -> bool:
        """Whether a compiler runs the engine on stand-ins for tensors."""
        return threading.get_ident() in self._regions and torchapi.dispatch_modes() > 0

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

    # -- compiled code guards on the mode: set it aside wherever Dynamo is switched on ------------

    def _patch_dynamo(self, module: ModuleType) -> None:
        original = getattr(module, "_maybe_set_eval_frame", None)
        if original is None:
            self.recorder.blind.append("torch.compile: this torch switches Dynamo in another way")
            return
        regions = self._regions

        @functools.wraps(original)
        def _maybe_set_eval_frame(callback: Any) -> Any:
            tape = self._tape()
            thread = threading.get_ident()
            caller = sys._getframe(1)
            if thread not in regions:
                # Calls from `__enter__` are left alone: their end comes from another frame.
                begins = callback is not None and caller.f_code.co_name != "__enter__"
                if begins and self.recorder.active:
                    self._set_aside(thread, id(caller), tape)
                return original(callback)
            result = original(callback)
            # The call that began the region ends it. While it compiles, Dynamo is off and on many
            # times.
            if callback is None and regions[thread] == id(caller):
                self._resume(thread, tape)
            return result

        self._replace(module, "_maybe_set_eval_frame", _maybe_set_eval_frame)

    def _set_aside(self, thread: int, caller: int, tape: Tape | None) -> None:
        """Begin a compiled region: no mode, and torch's own functions for compilers to read."""
        with self._lock:
            self._regions[thread] = caller
            if len(self._regions) == 1:
                self._show_originals(True)
        if tape is not None and torchapi.sequence_number is not None:
            tape.suspended = torchapi.remove_mode(tape.mode)
            tape.paused_at = torchapi.sequence_number()

    def _resume(self, thread: int, tape: Tape | None) -> None:
        """End a compiled region; what it made belongs to the line that called it."""
        with self._lock:
            del self._regions[thread]
            if not self._regions and self.recorder.active:
                self._show_originals(False)
        if tape is not None and tape.suspended is not None:
            above, tape.suspended = tape.suspended, None
            after = torchapi.sequence_number() if torchapi.sequence_number is not None else 0
            if after != tape.paused_at:
                self.recorder.note(tape, tape.paused_at, after, 3)
            torchapi.insert_mode(tape.mode, above)

    # -- torch.jit.trace names values by the variables of the frame that makes them -----------------

    def _patch_trace(self, module: ModuleType) -> None:
        for home in (module, sys.modules.get("torch.jit._trace")):
            for name in ("_trace_impl", "trace_module", "_get_trace_graph"):
                if name in getattr(home, "__dict__", {}):
                    self._replace(home, name, self._aside(vars(home)[name]))

    def _aside(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Call a function as a region without the mode."""

        @functools.wraps(original)
        @uncounted
        def aside(*args: Any, **kwargs: Any) -> Any:
            tape = self._tape()
            thread = threading.get_ident()
            begins = tape is not None and thread not in self._regions
            if begins:
                self._set_aside(thread, 0, tape)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                forget(error)
                raise
            finally:
                if begins:
                    self._resume(thread, tape)

        return aside

    # -- anomaly mode keeps the stack of each forward call, and prints it ---------------------------

    def _patch_stacks(self, module: ModuleType) -> None:
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
                if not recorder.active:
                    self.remove()

        return _bootstrap_inner


class Questions:
    """Answers torch's Python functions that ask whether anybody watches a call: not us.

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
        self._unscript: list[Callable[[], None]] = []

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
            ours = next((mode for mode in modes() if isinstance(mode, Recording)), None)
            above = remove(ours)
            try:
                return ours is None or original(*args)
            finally:
                if above is not None and self._tape() is not None:
                    insert(ours, above)

        return asks


def _bound(pairs: dict[str, tuple[Any, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """The modules' namespaces that have one of the functions under its name."""
    for module in list(sys.modules.values()):
        try:
            # A lazily loaded module would load if asked in the usual way.
            names = object.__getattribute__(module, "__dict__")
        except AttributeError:
            continue
        for name, pair in pairs.items():
            found = names.get(name)
            if found is not None and any(found is one for one in pair):
                yield names, name


_ABSENT: Any = object()


def _set(home: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(home, name)
    else:
        setattr(home, name, value)


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
            patches.remove()
