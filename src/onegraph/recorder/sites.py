"""Which frames are the user's, and a table of the expressions seen in them."""

from __future__ import annotations

import os
import site
import sysconfig
import threading
from types import CodeType, FrameType

OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What started the program stands below it on the stack and is not part of it.
LAUNCHER = OWN + os.path.join("cli", "launch.py")
DEPTH = 64
# In place of an instruction: the line that a function's definition begins at.
DEFINITION = -2

Instruction = tuple[CodeType, int]


def _library_roots() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    if hasattr(site, "getusersitepackages"):
        paths.add(site.getusersitepackages())
    paths.add(os.path.dirname(os.__file__))
    roots = {os.path.abspath(p) + os.sep for p in paths if p}
    return tuple(roots | {os.path.realpath(r) + os.sep for r in roots})


class UserFiles(dict[str, bool]):
    """Maps a code object's file name to whether it is the user's code; decides once a name.

    The user's code is what lies outside the standard library, installed packages and onegraph.
    """

    def __init__(self) -> None:
        super().__init__()
        self._roots = _library_roots()
        self._owned: str | None = None

    def __missing__(self, filename: str) -> bool:
        self[filename] = answer = self._decide(filename)
        return answer

    def own(self, filename: str, *, package: bool = False) -> None:
        """Count a main program as the user's wherever it is installed, or its whole package."""
        self[filename] = self[os.path.abspath(filename)] = True
        if package:
            self._owned = os.path.dirname(os.path.abspath(filename)) + os.sep
            for known in list(self):
                if not known.startswith("<") and os.path.abspath(known).startswith(self._owned):
                    self[known] = True

    def _decide(self, filename: str) -> bool:
        if filename.startswith("<"):
            # Cells of a notebook; not code that libraries generate.
            return filename.startswith("<ipython")
        if self._owned is None and filename.startswith(self._roots):
            return False
        path = os.path.abspath(filename)
        if self._owned is not None and path.startswith(self._owned):
            return True
        if path.startswith(OWN) or "importlib" + os.sep + "_bootstrap" in path:
            return False
        if any(mark in path for mark in (f"{os.sep}site-packages{os.sep}", "dist-packages")):
            return False
        return not path.startswith(self._roots)


class SiteTable:
    """Numbers the expressions of user code in the order they were first seen.

    Number 0 stands for "no user line". An expression is known by the instruction it compiles to
    and that of the next user frame outwards, so the same line called from two places is two
    sites; further out, the chain is the one of its first run.
    """

    def __init__(self, users: UserFiles) -> None:
        self.users = users
        self.known: dict[object, int] = {0: 0}
        self.chains: list[tuple[Instruction, ...]] = [()]
        # Types of the nodes that an expression's first run made, to tell threads apart.
        self.kinds: dict[int, frozenset[str]] = {}
        # The library file whose code made the call, for sites where it was not the user's own.
        self.via: dict[int, str] = {}
        # A file's state when its code was first seen running, to tell when it changes later.
        self.stamps: dict[str, tuple[int, int] | None] = {}
        self._lock = threading.Lock()

    def add(self, key: object, frame: FrameType | None, via: FrameType | None = None) -> int:
        """Number the expression that ``frame``, or the nearest user frame outwards, is at.

        ``via`` is the frame the recorded call was made from, a library's or the user's own.
        """
        other = via if via is not frame else None
        return self._number(key, self.chain(frame), other.f_code.co_filename if other else None)

    def of_definition(self, code: CodeType, frame: FrameType | None) -> int:
        """The site of a function's definition, its decorators first, called from ``frame``."""
        key = ("def", id(code))
        known = self.known.get(key)
        return (
            self._number(key, ((code, DEFINITION), *self.chain(frame)), None)
            if known is None
            else known
        )

    def _number(self, key: object, chain: tuple[Instruction, ...], via: str | None) -> int:
        with self._lock:
            # Threads that meet an expression at the same time must agree on its number.
            number = self.known.get(key)
            if number is not None:
                return number
            number = len(self.chains) if chain else 0
            if chain:
                self.chains.append(chain)
                if via is not None:
                    self.via[number] = via
                for code, _ in chain:
                    if code.co_filename not in self.stamps:
                        self.stamps[code.co_filename] = stamp(code.co_filename)
            self.known[key] = number
            return number

    def chain(self, frame: FrameType | None) -> tuple[Instruction, ...]:
        """The user's frames from ``frame`` outwards to the main program, innermost first."""
        chain: list[Instruction] = []
        users = self.users
        while frame is not None and len(chain) < DEPTH:
            code = frame.f_code
            if code.co_filename == LAUNCHER:
                break
            if users[code.co_filename]:
                chain.append((code, frame.f_lasti))
            frame = frame.f_back
        return tuple(chain)

    def of_chain(self, frame: FrameType | None) -> int:
        """The site of an engine call: known by its whole chain."""
        chain = self.chain(frame)
        key = tuple([id(code) + lasti for code, lasti in chain])
        number = self.known.get(key)
        return self.add(key, frame) if number is None else number


def stamp(filename: str) -> tuple[int, int] | None:
    """Modification time and size of a file, None when it cannot be read."""
    try:
        status = os.stat(filename)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
