"""Sets the mode aside where a compiler or a tracer would take it for a part of the program."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from onegraph.recorder import torchapi
from onegraph.recorder.frames import forget, uncounted
from onegraph.recorder.session import Recorder
from onegraph.recorder.tape import Tape


class Regions:
    """The stretches of each thread in compiled or traced code.

    No mode of ours is on in them, and `show` has put back what compilers would read or trace. What
    a region makes belongs to the line that called it.

    Args:
        tape: gives the calling thread's tape while recording.
        show: puts torch's own functions in place for True, ours for False.
    """

    def __init__(
        self, recorder: Recorder, tape: Callable[[], Tape | None], show: Callable[[bool], None]
    ) -> None:
        self._recorder = recorder
        self._tape = tape
        self._show = show
        # By thread: the frame that began the region.
        self._began: dict[int, int] = {}
        self._lock = threading.Lock()

    def compiles(self) -> bool:
        """Whether the calling thread's compiler works on stand-ins for tensors."""
        return threading.get_ident() in self._began and torchapi.dispatch_modes() > 0

    def dynamo(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap what switches Dynamo on and off: compiled code guards on the modes there are."""
        began, begin, end = self._began, self._begin, self._end

        @functools.wraps(original)
        def _maybe_set_eval_frame(callback: Any) -> Any:
            tape = self._tape()
            thread = threading.get_ident()
            caller = sys._getframe(1)
            if thread not in began:
                # Calls from `__enter__` are left alone: their end comes from another frame.
                entered = callback is not None and caller.f_code.co_name != "__enter__"
                if entered and self._recorder.active:
                    begin(thread, id(caller), tape)
                return original(callback)
            result = original(callback)
            # The call that began the region ends it. While it compiles, Dynamo is off and on many
            # times.
            if callback is None and began[thread] == id(caller):
                end(thread, tape)
            return result

        return _maybe_set_eval_frame

    def tracer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what traces a function: it names values by the variables of the innermost frame."""

        @functools.wraps(original)
        @uncounted
        def traces(*args: Any, **kwargs: Any) -> Any:
            tape = self._tape()
            thread = threading.get_ident()
            begins = tape is not None and thread not in self._began
            if begins:
                self._begin(thread, 0, tape)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                forget(error)
                raise
            finally:
                if begins:
                    self._end(thread, tape)

        return traces

    def _begin(self, thread: int, caller: int, tape: Tape | None) -> None:
        with self._lock:
            self._began[thread] = caller
            if len(self._began) == 1:
                self._show(True)
        if tape is not None and torchapi.sequence_number is not None:
            tape.suspended = torchapi.remove_mode(tape.mode)
            tape.paused_at = torchapi.sequence_number()

    def _end(self, thread: int, tape: Tape | None) -> None:
        with self._lock:
            del self._began[thread]
            if not self._began and self._recorder.active:
                self._show(False)
        if tape is not None and tape.suspended is not None:
            above, tape.suspended = tape.suspended, None
            after = torchapi.sequence_number() if torchapi.sequence_number is not None else 0
            if after != tape.paused_at:
                self._recorder.note(tape, tape.paused_at, after, 3)
            torchapi.insert_mode(tape.mode, above)
