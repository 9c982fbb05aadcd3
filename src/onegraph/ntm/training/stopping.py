"""Signals that end a run after the step at hand, and what to say of numbers that are none."""

from __future__ import annotations

import math
import signal
import threading
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from onegraph.lifetime.nest import tensors
from onegraph.ntm.layer import NTM


class Signals:
    """While open, Ctrl-C, SIGTERM and SIGHUP are noted; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # Python allows handlers in the main thread alone; elsewhere signals do what they did.
        if threading.current_thread() is threading.main_thread():
            for number in _handled():
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


def _handled() -> list[int]:
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    # A closed terminal, where there is such a signal; `nohup` has it ignored, and so it stays.
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        numbers.append(hangup)
    return numbers


@torch.no_grad()
def first_bad(model: NTM, inputs: Tensor, loss: float) -> str | None:
    """The first tensor, in the order of computing, that holds something not finite.

    Args:
        model: its gradients are those of the step that failed.
        inputs: (T, B, Din), what the step saw.
        loss: what it came to.
    """
    if not _finite(inputs):
        return "inputs"
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if not _finite(parameter):
            return f"the parameter {name}"
    state = model.initial_state(inputs.shape[1])
    for t, x in enumerate(inputs.unbind(0)):
        out, state = model.cell.step(x, state)
        if not _finite(out):
            return f"the controller's output at time step {t}"
        for part in ("weightings", "reads", "memory", "controller"):
            for name, tensor in tensors(getattr(state, part), f"state.{part}"):
                if not _finite(tensor):
                    return f"{name} at time step {t}"
    if not _finite(model(inputs)[0]):
        return "the output"
    if not math.isfinite(loss):
        return "the loss"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name}"
    return None


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())
