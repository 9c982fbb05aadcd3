"""How a run says that it cannot go on: one line for the user, and the status to exit with."""

from __future__ import annotations

import errno
import os

USAGE = 2


class RunError(Exception):
    """The run stops here; the message is one line that says what happened and what is safe.

    Args:
        message: what to print.
        status: the exit status: 2 for what the user asked for, 1 for what went wrong on the way.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message, status)
        self.message, self.status = message, status
        # Of several processes that fail as one, one tells.
        self.quiet = False

    def __str__(self) -> str:
        return self.message


class Stopped(RunError):
    """A signal ended the run, which was saved first."""


class Diverged(RunError):
    """The run came to numbers that are not finite; nothing of that was saved."""


def reason(error: OSError) -> str:
    """What the system says went wrong, without Python's wrapping."""
    if error.errno is None:
        return str(error)
    if error.errno == errno.ENOSPC:
        return "no space left on the disk"
    return os.strerror(error.errno).lower()
