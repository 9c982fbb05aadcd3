"""The training loop: each step one seeded batch, one graph, one backward call.

All that is random in step k follows from the run's seed and k, so a run can go on from any step,
and each of several processes can draw the whole batch of a step and keep its part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor

from onegraph.lifetime import detach, windows
from onegraph.ntm import tasks
from onegraph.ntm.layer import NTM
from onegraph.ntm.tasks import Batch, Task
from onegraph.ntm.training.checkpoint import Checkpoint, Run
from onegraph.ntm.training.errors import USAGE, Diverged, RunError, Stopped, reason
from onegraph.ntm.training.evaluate import count_bits, derived_seed, generator, trace
from onegraph.ntm.training.optimizers import (
    join_optimizer,
    make_optimizer,
    set_rate,
    split_optimizer,
)
from onegraph.ntm.training.options import Options, make_model, make_task
from onegraph.ntm.training.progress import Display, Silent, display
from onegraph.ntm.training.stopping import Signals, first_bad

if TYPE_CHECKING:
    from onegraph.ntm.training.board import Board

T = TypeVar("T")


@dataclass
class Meter:
    """What the steps since the last point of the curve came to; it goes into checkpoints."""

    steps: int = 0
    nats: float = 0.0
    bits: int = 0
    sequences: int = 0
    errors: int = 0
    norm: float = 0.0

    def add(self, nats: float, errors: int, bits: int, sequences: int, norm: float) -> None:
        """Count a step."""
        self.steps += 1
        self.nats, self.bits = self.nats + nats, self.bits + bits
        self.sequences, self.errors = self.sequences + sequences, self.errors + errors
        self.norm = max(self.norm, norm)

    def point(self, step: int) -> dict[str, float]:
        """The point of the curve that ends at a step."""
        return {
            "step": step,
            "loss": self.nats / self.bits,
            "bits_per_sequence": self.nats / math.log(2) / self.sequences,
            "bit_error_rate": self.errors / self.bits,
            "gradient_norm": self.norm,
        }


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Args:
        step: how many steps were taken, those of earlier processes included.
        curve: the points of the learning curve.
        primary: whether this is the process that speaks for all.
    """

    step: int
    curve: list[dict[str, float]]
    primary: bool


def train(
    run: Run,
    prepare: Callable[[Run], Options],
    stream: TextIO,
    *,
    cpu: bool = False,
    board: bool = True,
) -> Result:
    """Train a run to its last step, from the newest whole checkpoint if it has one.

    Args:
        run: where it is kept.
        prepare: what decides the options of the run, new or found; called in one process.
        stream: where progress goes.
        cpu: whether to stay on the processor though there is an accelerator.
        board: whether to write for TensorBoard.

    Raises:
        RunError: the run cannot begin or go on; what was saved before stays.
        Stopped: a signal ended it, after a save.
    """
    # Told so, Accelerate lets several processes meet without an accelerator too.
    cpu = cpu or not torch.accelerator.is_available()
    fresh = not AcceleratorState._shared_state
    state = PartialState(cpu=cpu)
    loop = None
    try:
        options = _agreed(lambda: prepare(run))
        if options.batch < state.num_processes:
            raise RunError(
                f"a batch of {options.batch} cannot be shared by {state.num_processes} processes",
                USAGE,
            )
        try:
            accelerator = Accelerator(mixed_precision=options.precision, cpu=cpu)
        except ValueError as error:
            raise RunError(str(error).partition("\n")[0], USAGE) from None
        # Last, so that what cannot be leaves nothing behind.
        _agreed(lambda: run.begin(options))
        loop = _Loop(run, options, accelerator, stream, board)
        return loop.go()
    except RunError as error:
        error.quiet = not state.is_main_process
        # The frames hold the wrapped model: see `_leave`.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        del loop
        run.end()
        _leave(fresh)


class _Loop:
    """One process's part of a run."""

    def __init__(
        self, run: Run, options: Options, accelerator: Accelerator, stream: TextIO, board: bool
    ) -> None:
        self.run, self.options, self.accelerator = run, options, accelerator
        self.stream, self.with_board = stream, board
        self.world, self.rank = accelerator.num_processes, accelerator.process_index
        self.primary = bool(accelerator.is_main_process)
        self.task: Task = make_task(options)
        self.model: NTM = make_model(options, self.task)
        self.optimizer = make_optimizer(options, self.model.parameters())
        self.curve: list[dict[str, float]] = []
        self.meter, self.step, self.saved = Meter(), 0, -1
        self.complaints: list[str] = []
        scaling = self._restore()
        self.wrapped, self.prepared = accelerator.prepare(self.model, self.optimizer)
        if scaling and accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(scaling)

    def _restore(self) -> dict[str, Any]:
        found, self.complaints = self.run.load()
        if found is None:
            return {}
        try:
            self.model.load_state_dict(found.model)
            set_rate(self.optimizer, self.options, found.step)
            join_optimizer(self.optimizer, found.optimizer, found.settings)
            torch.set_rng_state(found.random)
            extra = found.extra
            self.curve, self.meter = extra["curve"], Meter(**extra["meter"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            why = " ".join(str(error).split())
            raise RunError(
                f"{self.run}: the checkpoint does not fit the run's options: {why}", USAGE
            ) from None
        self.step = self.saved = found.step
        scaling: dict[str, Any] = extra.get("scaler", {})
        return scaling

    def go(self) -> Result:
        """Take the steps that are left."""
        options, first = self.options, self.step
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(Signals())
            shown: Display = Silent()
            board: Board | None = None
            if self.primary:
                shown = display(self.stream, first, options.steps)
                if self.with_board and first < options.steps:
                    board = self._open_board(stack)
            stack.enter_context(shown)
            for line in self.complaints:
                shown.say(f"{line}; going on from step {first:,}")
            if self.saved < 0:
                # From here on there is a checkpoint that a failure can name.
                self._save()
            began = time.monotonic()
            while self.step < options.steps:
                stop = self._take(shown, signals)
                if self.step % options.log_every == 0:
                    self.curve.append(self.meter.point(self.step))
                    self.meter = Meter()
                    if board is not None:
                        rate = (self.step - first) / max(time.monotonic() - began, 1e-9)
                        with self._boarding():
                            board.point(self.curve[-1], rate)
                if stop or self.step % options.save_every == 0 or self.step == options.steps:
                    self._save()
                    if board is not None:
                        with self._boarding():
                            board.pictures(self.step, trace(self.model, self.task))
                if stop and self.step < options.steps:
                    name = "interrupted" if stop == signal.SIGINT else "told to end"
                    raise Stopped(
                        f"{name} after step {self.step:,}, which is saved in {self.run.latest()}; "
                        "the same command with --resume goes on",
                        128 + stop,
                    )
        return Result(self.step, self.curve, self.primary)

    def _take(self, shown: Display, signals: Signals) -> int:
        """One step; returns the signal that any of the processes received, or 0."""
        step, options, accelerator = self.step + 1, self.options, self.accelerator
        # What in a model draws at random draws the same in step k of every run.
        _seed(derived_seed(options.seed, "step", step, self.rank), accelerator.device)
        whole = self.task.draw(options.batch, generator(options.seed, "batch", step))
        bits = count_bits(whole)
        part = self._part(whole)
        self.prepared.zero_grad()
        nats, errors = self._backward(part, self.world / (bits if options.loss == "bit" else
                                                          options.batch))  # fmt: skip
        # Components first: an infinite one becomes the limit, and all that is left has a norm.
        if options.clip_value is not None:
            accelerator.clip_grad_value_(self.wrapped.parameters(), options.clip_value)
        limit = math.inf if options.clip_norm is None else options.clip_norm
        norm = float(accelerator.clip_grad_norm_(self.wrapped.parameters(), limit))
        numbers = [nats, errors, signals.received, norm]
        if self.world > 1:
            shared = torch.tensor(numbers[:3], dtype=torch.float64, device=accelerator.device)
            numbers[:2] = accelerator.reduce(shared, "sum").tolist()[:2]
            # Not a sum: two processes may have received different signals.
            numbers[2] = int(max(gather_object([signals.received])))
        # With a scaler, a gradient that is not finite is part of the plan: the step is left out.
        if not math.isfinite(numbers[0]) or (not math.isfinite(norm) and not accelerator.scaler):
            self._refuse(step, part, nats)
        set_rate(self.optimizer, options, step)
        self.prepared.step()
        self.step = step
        self.meter.add(numbers[0], int(numbers[1]), bits, options.batch,
                       norm if math.isfinite(norm) else 0.0)  # fmt: skip
        shown.show(step, numbers[0] / bits, numbers[0] / math.log(2) / options.batch)
        return int(numbers[2])

    def _part(self, whole: Batch) -> Batch:
        """This process's sequences of a batch, where and of what type the model is."""
        like = self.model.output.weight
        inputs, targets, mask = (
            tensor.tensor_split(self.world, dim=1)[self.rank].to(like.device) for tensor in whole
        )
        return Batch(inputs.to(like.dtype), targets.to(like.dtype), mask)

    def _backward(self, part: Batch, scale: float) -> tuple[float, int]:
        """Add up the gradients of scale · nats; return the nats, and how many bits were wrong."""
        nats, errors, state = 0.0, 0, None
        for window in windows(tuple(part), self.options.window or len(part.inputs)):
            seen = Batch(*window.data)
            with window.sync(self.wrapped):
                cut = state is not None
                logits, state = self.wrapped(seen.inputs, state)
                loss = _nats(logits, seen)
                if self.world > 1 and window.last and cut:
                    # A learned initial state is in the first window's graph alone, and processes
                    # meet only when every parameter takes part in the last.
                    loss = loss + sum((p * 0).sum() for p in self.model.parameters())
                # Also where nothing counts: the last backward is what processes meet at.
                self.accelerator.backward(loss * scale)
            nats += float(loss.detach())
            errors += int(tasks.bit_errors(logits, seen).sum())
            state = detach(state)
        return nats, errors

    def _refuse(self, step: int, part: Batch, nats: float) -> None:
        """Stop, with the first tensor that is not finite.

        The parameters are those before the step, and so is what was saved.
        """
        found = first_bad(self.model, part.inputs, nats)
        if self.world > 1:
            found = next((name for name in gather_object([found]) if name), None)
        raise Diverged(
            f"step {step:,} came to numbers that are not finite, first in {found or 'the loss'}; "
            f"{self.run.standing()}"
        )

    def _save(self) -> None:
        if self.saved == self.step:
            return
        # What is saved must be good: a step may have made a parameter infinite just now.
        found, settings = split_optimizer(self.optimizer)
        bad = [
            *(name for name, value in self.model.state_dict().items() if not _finite(value)),
            *(f"the optimiser's {name}" for name, value in found.items() if not _finite(value)),
        ]
        if bad:
            raise Diverged(
                f"after step {self.step:,} {bad[0]} is not finite; {self.run.standing()}"
            )
        extra: dict[str, Any] = {"curve": self.curve, "meter": dataclasses.asdict(self.meter)}
        if self.accelerator.scaler is not None:
            extra["scaler"] = self.accelerator.scaler.state_dict()
        checkpoint = Checkpoint(
            self.step, self.model.state_dict(), found, settings, torch.get_rng_state(), extra
        )
        _agreed(lambda: self.run.save(checkpoint))
        self.saved = self.step

    def _open_board(self, stack: contextlib.ExitStack) -> Board:
        # Here, so that a run without a board needs no TensorBoard.
        from onegraph.ntm.training.board import Board

        with self._boarding():
            board = Board(self.run.folder / "tensorboard", self.step)

            def close(*_: object) -> None:
                # The run is saved or has failed by now; what is left of the board is no reason
                # to hide that.
                with contextlib.suppress(OSError):
                    board.close()

            stack.push(close)
            return board

    @contextlib.contextmanager
    def _boarding(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # TensorBoard names its file in bytes, or not at all.
            where = os.fsdecode(error.filename or self.run.folder / "tensorboard")
            raise RunError(
                f"cannot write {where}: {reason(error)}; {self.run.standing()}"
            ) from None


def _nats(logits: Tensor, batch: Batch) -> Tensor:
    """The cross-entropy of all that counts, summed over steps and sequences."""
    return tasks.loss(logits, batch) * (math.log(2) * batch.mask.shape[1])


def _seed(seed: int, device: torch.device) -> None:
    """As `torch.manual_seed`, which formats the stack on its way to devices that are not there."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _leave(fresh: bool) -> None:
    """Leave the group of processes, and Accelerate as it was found.

    Args:
        fresh: whether Accelerate was in no use before; then another run may choose anew.
    """
    state = PartialState()
    if state.num_processes > 1:
        # The wrapped model is part of a cycle and holds on to the group, which must not outlive
        # this: its threads would still run when the process ends, and abort it.
        gc.collect()
        state.destroy_process_group()
    if fresh:
        AcceleratorState._reset_state(reset_partial_state=True)


def _agreed(act: Callable[[], T]) -> T:
    """Do something in the first process alone; all get what it returned, or fail as it did."""
    state = PartialState()
    if state.num_processes == 1:
        return act()
    outcome: list[Any] = [None]
    if state.is_main_process:
        try:
            outcome = [(True, act())]
        except RunError as error:
            outcome = [(False, error)]
    broadcast_object_list(outcome)
    good, value = outcome[0]
    if not good:
        raise value
    found: T = value
    return found
