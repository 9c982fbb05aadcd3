"""The recorder: what is alive while the user trains, from `start` to `stop`."""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from onegraph.recorder import torchapi
from onegraph.recorder.mode import InPlace, make_mode
from onegraph.recorder.sites import SiteTable, UserFiles
from onegraph.recorder.tape import PatternStore, Tape

# The nodes that an engine call walks are noted for the first turns of each call's line, while
# that stays cheap: it makes "which call freed this node" exact where programs usually fail.
WALK_TURNS = 3
WALK_NODES = 2_000
WALK_CALLS = 64
ROOTS_KEPT = 1_000
# The tapes of threads that have ended.
FINISHED_KEPT = 8_192

RETAIN, CREATE, GRAD, WEIGHTED, CHECKPOINT = 1, 2, 4, 8, 16


class EngineLog:
    """Every engine call as a row of small numbers; row k is the call of ordinal k + 1."""

    def __init__(self) -> None:
        self.site = array("i")
        self.flags = array("B")
        self.thread = array("h")
        self.number = array("q")
        self.root = array("q")
        self.output = array("H")
        self.parent = array("i")
        self.roots: dict[int, list[tuple[int, int]]] = {}
        self.reached: dict[int, array[int]] = {}
        self.used: dict[int, set[tuple[int, int]]] = {}
        self.turns: Counter[int] = Counter()
        self.walks = 0

    def __len__(self) -> int:
        return len(self.site)


class Recorder:
    """Watches this process's use of autograd; one is active at a time.

    Args:
        lines: record which line made which node; without it only engine calls are noted.
        notes: also note which nodes every engine call walks, for notes about harmless reuse.
    """

    def __init__(self, *, lines: bool = True, notes: bool = False) -> None:
        self.lines = lines
        self.notes = notes
        self.users = UserFiles()
        self.sites = SiteTable(self.users)
        self.in_place = InPlace()
        self.store = PatternStore()
        self.engine = EngineLog()
        self.tapes: dict[int, Tape] = {}
        self.finished: dict[bytes, Tape] = {}
        self.ordinal = 0
        self.open: dict[int, list[int]] = {}
        self.blind: list[str] = list(torchapi.missing())
        self.targets: dict[Any, int] = {}
        self.kinds: dict[str, int] = {}
        self.failures: list[Any] = []
        self.active = False
        # Files are named relative to where the program was started.
        self.folder = os.getcwd()
        # Whether a thread that is not recorded has been about, whose nodes must not be mistaken.
        self.strangers = threading.active_count() > 1
        self.texts: dict[str, str] = {}
        self._lock = threading.Lock()
        self._next_tape = 0

    # -- threads ---------------------------------------------------------------------------

    def enter_thread(self) -> Tape | None:
        """Record the calling thread from here on."""
        if not self.lines or torchapi.sequence_number is None:
            return None
        with self._lock:
            ident = threading.get_ident()
            tape = self.tapes.get(ident)
            if tape is None:
                tape = Tape(self._next_tape, self.store, torchapi.sequence_number(), self.ordinal)
                self._next_tape += 1
                self.tapes[ident] = tape
        tape.mode = make_mode(self, tape)
        torchapi.push_mode(tape.mode)
        return tape

    def leave_thread(self) -> None:
        """Stop recording the calling thread; what was seen of it stays known."""
        tape = self.tapes.pop(threading.get_ident(), None)
        if tape is None:
            return
        torchapi.remove_mode(tape.mode)
        tape.mode = None
        tape.seal(self.ordinal)
        tape.lately.clear()
        if len(tape.bases):
            # Of threads that did the same, a pool's or a replica's, one stands for all.
            self.finished[tape.content()] = tape
            if len(self.finished) > FINISHED_KEPT:
                del self.finished[next(iter(self.finished))]
                self.strangers = True

    def leave_all(self) -> None:
        """Stop recording; a thread other than the calling one drops its mode at its next call."""
        self.leave_thread()

    def tape(self) -> Tape | None:
        """The calling thread's tape."""
        return self.tapes.get(threading.get_ident())

    def all_tapes(self) -> list[Tape]:
        """Tapes of running and finished threads."""
        return [*self.finished.values(), *self.tapes.values()]

    def reseal(self, tape: Tape) -> None:
        """Close a tape's stretch because it is long or another thread called the engine."""
        with self._lock:
            tape.seal(self.ordinal)

    # -- what the mode does not do itself ----------------------------------------------------

    def note(self, tape: Tape, before: int, after: int, depth: int) -> None:
        """Note a call that is not overridable; ``depth`` counts frames up to its caller."""
        frame = sys._getframe(depth)
        chain_key = self._key(frame)
        site = self.sites.known.get(chain_key)
        if site is None:
            site = self.sites.add(chain_key, frame)
        tape.entries.extend((before - tape.last, after - before, site))
        tape.last = after

    def _key(self, frame: Any) -> object:
        """The site key of the nearest two user frames, as the mode builds it."""
        users = self.users
        found: list[int] = []
        while frame is not None and len(found) < 2:
            code = frame.f_code
            if users[code.co_filename]:
                found.append(id(code) + frame.f_lasti)
            frame = frame.f_back
        return tuple(found) if len(found) == 2 else found[0] if found else 0

    def note_write(self, tape: Tape, args: Sequence[Any]) -> None:
        """Note an in-place write that made no node, when it goes to tensors that are trained."""
        target = args[0] if args else None
        if isinstance(target, (list, tuple)):
            if not target or not getattr(target[0], "requires_grad", False):
                return
            key: Any = tuple(map(id, target))
        elif getattr(target, "requires_grad", False):
            key = id(target)
        else:
            return
        number = self.targets.setdefault(key, len(self.targets) + 1)
        frame = sys._getframe(2)
        chain_key = self._key(frame)
        site = self.sites.known.get(chain_key)
        if site is None:
            site = self.sites.add(chain_key, frame)
        tape.entries.extend((0, -number, site))

    # -- engine calls -------------------------------------------------------------------------

    def begin(self, outputs: Sequence[Any], args: tuple[Any, ...], options: dict[str, Any]) -> int:
        """Note an engine call about to start; return its ordinal."""
        ident = threading.get_ident()
        tape = self.tapes.get(ident)
        frame = sys._getframe(2)
        site = self.sites.of_chain(frame)
        retain = args[1] if len(args) > 1 else options.get("keep_graph")
        create = args[2] if len(args) > 2 else options.get("create_graph")
        flags = (RETAIN if retain else 0) | (CREATE if create else 0)
        if not options.get("accumulate_grad", False):
            flags |= GRAD
        if args and any(g is not None for g in args[0]) and _explicit(outputs, args[0]):
            flags |= WEIGHTED
        stack = self.open.setdefault(ident, [])
        parent = stack[-1] if stack else 0
        if stack and _in_checkpoint(frame):
            flags |= CHECKPOINT
        roots = []
        for output in outputs:
            if isinstance(output, GradientEdge):
                node, index = output.node, output.output_nr
            else:
                node, index = output.grad_fn, output.output_nr
            if node is not None:
                roots.append((torchapi.node_number(node), index))
        log = self.engine
        with self._lock:
            self.ordinal += 1
            ordinal = self.ordinal
            log.site.append(site)
            log.flags.append(flags)
            log.thread.append(-1 if tape is None else tape.index)
            log.number.append(torchapi.sequence_number() if torchapi.sequence_number else 0)
            log.root.append(roots[0][0] if roots else -1)
            log.output.append(roots[0][1] if roots else 0)
            log.parent.append(parent)
            if len(roots) > 1:
                log.roots[ordinal] = roots
                if len(log.roots) > ROOTS_KEPT:
                    del log.roots[next(iter(log.roots))]
            if tape is not None:
                tape.seal(ordinal)
            if len(self.tapes) > 1:
                for other in self.tapes.values():
                    if other is not tape:
                        other.limit = 0
        log.turns[site] += 1
        if (self.notes or log.turns[site] <= WALK_TURNS) and log.walks < WALK_CALLS:
            self._walk(ordinal, outputs)
        stack.append(ordinal)
        return ordinal

    def end(self, ordinal: int) -> None:
        """Note that an engine call is over, however it ended."""
        stack = self.open.get(threading.get_ident(), [])
        while stack and stack.pop() != ordinal:
            pass

    def _walk(self, ordinal: int, outputs: Sequence[Any]) -> None:
        """Note which nodes the call is about to walk, if they are few."""
        seen: set[Any] = set()
        stack = [o.node if isinstance(o, GradientEdge) else o.grad_fn for o in outputs]
        marks = array("q")
        used: set[tuple[int, int]] = set()
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if len(seen) > WALK_NODES:
                return
            number = torchapi.node_number(node)
            if number >= 0:
                marks.append(self.mark(number, node.name()))
            for other, output in node.next_functions:
                stack.append(other)
                if other is not None and (output or _many(other.name())):
                    number = torchapi.node_number(other)
                    used.add((self.mark(number, other.name()), output))
        self.engine.walks += 1
        self.engine.reached[ordinal] = marks
        self.engine.used[ordinal] = used

    def mark(self, number: int, kind: str) -> int:
        """A node as one number: threads share sequence numbers, but rarely with the same type."""
        return number << 16 | self.kinds.setdefault(kind, len(self.kinds)) & 0xFFFF


def _many(kind: str) -> bool:
    """Whether nodes of a type have several outputs, so that it matters which were used."""
    return kind.startswith(("Split", "Unbind", "Chunk")) or "CompiledFunction" in kind


def _explicit(outputs: Sequence[Any], gradients: Sequence[Any]) -> bool:
    """Whether the call was given gradients of outputs that are not single numbers."""
    return any(
        isinstance(output, torch.Tensor) and output.numel() != 1 and gradient is not None
        for output, gradient in zip(outputs, gradients, strict=False)
    )


def _in_checkpoint(frame: Any) -> bool:
    """Whether an engine call was made by activation checkpointing's own backward."""
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(os.path.join("torch", "utils", "checkpoint.py")):
            return True
        frame = frame.f_back
    return False
