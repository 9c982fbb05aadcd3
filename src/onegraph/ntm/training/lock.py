"""A file that one process at a time can hold."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    # Windows has no such locks; there it is up to the user not to write a run twice at once.
    fcntl = None


class Lock:
    """A file whose lock the system lets go of when the process ends, however it ends.

    Args:
        path: the file; it is made, and stays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Hold the lock; False if another process does."""
        if fcntl is None or self._handle is not None:
            return True
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:
            # Some file systems have no locks.
            os.close(handle)
            return True
        self._handle = handle
        return True

    def release(self) -> None:
        """Let go of it, if it is held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
