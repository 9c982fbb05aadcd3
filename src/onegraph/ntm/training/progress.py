"""What a run shows while it goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any, Protocol, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Seconds between two plain lines.
PERIOD = 10.0


class Display(Protocol):
    """Shows how a run goes on."""

    def __enter__(self) -> Display:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End."""

    def show(self, step: int, loss: float, bits: float) -> None:
        """Say what a step came to: nats a bit, and bits a sequence."""

    def say(self, line: str) -> None:
        """Say a line of its own."""


class Silent:
    """Shows nothing: for all processes but the first."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, step: int, loss: float, bits: float) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


class Lines:
    """A line now and then.

    Args:
        stream: where to.
        first, last: the steps before the first one and at the end.
    """

    def __init__(self, stream: TextIO, first: int, last: int) -> None:
        self.stream, self.last = stream, last
        self.rate = _Rate(first)
        # The first line comes early: it shows that all is well, and how fast.
        self.due = time.monotonic() + 2.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, step: int, loss: float, bits: float) -> None:
        """A line, if it is time for one or this is the last step."""
        now = time.monotonic()
        if now < self.due and step < self.last:
            return
        self.due = now + PERIOD
        self.say(
            f"step {step:,} of {self.last:,}: {self.rate(step):.1f} steps/s, "
            f"loss {loss:.5f} nats/bit, {bits:.3f} bits/sequence"
        )

    def say(self, line: str) -> None:
        """A line."""
        print(line, file=self.stream, flush=True)


class Bar:
    """A bar that fills.

    Args:
        stream: a terminal.
        first, last: the steps before the first one and at the end.
    """

    def __init__(self, stream: TextIO, first: int, last: int) -> None:
        self.rate = _Rate(first)
        self.progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream),
            expand=True,
        )
        self.task = self.progress.add_task("", total=last, completed=first, numbers="")

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, step: int, loss: float, bits: float) -> None:
        """Move the bar."""
        numbers = f"{self.rate(step):.1f}/s  loss {loss:.4f}  {bits:.2f} bits/seq"
        self.progress.update(self.task, completed=step, numbers=numbers)

    def say(self, line: str) -> None:
        """A line above the bar."""
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Unfailing:
    """A stream whose reader may go and whose disk may fill: no run ends for what it shows."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write it if that can be done."""
        # A closed stream is a ValueError.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush it if that can be done."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def display(stream: TextIO, first: int, last: int) -> Display:
    """A bar where it can be drawn, lines elsewhere; it never fails for its stream."""
    stream = cast(TextIO, _Unfailing(stream))
    kind = Bar if stream.isatty() and not Console(file=stream).is_dumb_terminal else Lines
    return kind(stream, first, last)


class _Rate:
    """Steps a second since the beginning."""

    def __init__(self, first: int) -> None:
        self.first, self.since = first, time.monotonic()

    def __call__(self, step: int) -> float:
        return (step - self.first) / max(time.monotonic() - self.since, 1e-9)
