"""The recorder: what is alive while the user trains, from `start` to `stop`."""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from onegraph.recorder import torchapi
from onegraph.recorder.cuts import LIBRARY_SCOPE, Cuts
from onegraph.recorder.effects import DATA, GRADIENT, INDICES, SWITCH, VALUE
from onegraph.recorder.faults import tell_fault
from onegraph.recorder.growth import Growing, Growth, due, size
from onegraph.recorder.mode import make_mode
from onegraph.recorder.packed import PackedInts
from onegraph.recorder.sites import SiteTable, UserFiles
from onegraph.recorder.tape import PatternStore, Tape
from onegraph.recorder.training import ZERO_KINDS, Training
from onegraph.recorder.writes import Stepping, Writes, has_history, targets_of

# The nodes that an engine call walks are noted for the first turns of each call's line, while
# that stays cheap: it makes "which call freed this node" exact where programs usually fail.
WALK_TURNS = 3
WALK_NODES = 2_000
WALK_CALLS = 64
ROOTS_KEPT = 1_000
GRAD_READS_KEPT = 64
MADE_AT_MOST = 2**31 - 1
# The tapes of threads that have ended.
FINISHED_KEPT = 8_192

RETAIN, CREATE, GRAD, WEIGHTED, CHECKPOINT, LIBRARY = 1, 2, 4, 8, 16, 32


# The code of torch's that stands between a program's call and the engine.
_ENTRANCES = tuple(
    os.path.join("torch", *path)
    for path in (("_tensor.py",), ("overrides.py",), ("autograd", "__init__.py"))
)


# The code of `torch.no_grad` and its like.
_SCOPES = tuple(
    os.path.join("torch", *path)
    for path in (("autograd", "grad_mode.py"), ("utils", "_contextlib.py"))
)


class EngineLog:
    """Every engine call as a row of small numbers; row k is the call of ordinal k + 1."""

    def __init__(self) -> None:
        self.site = array("i")
        self.flags = array("B")
        self.thread = array("i")
        self.number = PackedInts()
        # How many nodes the call made itself.
        self.made = array("i")
        self.root = PackedInts()
        self.output = array("i")
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
        self.writes = Writes()
        self.stepping = Stepping()
        self.cuts = Cuts()
        self.training = Training()
        self.growth = Growth()
        # (site, number of the tensor's node) where `.grad` of a non-leaf was read and was None.
        self.grad_reads: list[tuple[int, int]] = []
        self.store = PatternStore()
        self.engine = EngineLog()
        self.tapes: dict[int, Tape] = {}
        self.finished: dict[bytes, Tape] = {}
        self.ordinal = 0
        self.open: dict[int, list[int]] = {}
        self.blind: list[str] = list(torchapi.missing())
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

    def fault(self, fault: Exception) -> None:
        """Say once that onegraph itself failed; what it cannot note then stays unknown."""
        if "onegraph failed" not in self.blind:
            self.blind.append("onegraph failed")
            tell_fault(fault)

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
        site = self._site(sys._getframe(depth))
        tape.entries.extend((before - tape.last, after - before, site))
        tape.last = after

    def _site(self, caller: Any) -> int:
        """The site of the nearest two user frames, by the key that the mode makes of them."""
        users, frame, user = self.users, caller, None
        found: list[int] = []
        while frame is not None and len(found) < 2:
            code = frame.f_code
            if users[code.co_filename]:
                user = user or frame
                found.append(id(code) + frame.f_lasti)
            frame = frame.f_back
        key: object = tuple(found) if len(found) == 2 else found[0] if found else 0
        site = self.sites.known.get(key)
        return self.sites.add(key, user, caller) if site is None else site

    def note_effect(
        self,
        tape: Tape,
        effect: int,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        result: Any,
        number: int,
    ) -> None:
        """Note what a call seen by the mode did besides making nodes, see `Effects`."""
        caller = sys._getframe(2)
        if effect == SWITCH:
            self.cuts.switch(bool(args and args[0]), partial(self._scope, caller))
        elif effect in (VALUE, DATA):
            if args and isinstance(args[0], torch.Tensor):
                if has_history(args[0]):
                    site_of = partial(self._site, caller)
                    self.cuts.look(func, args[:1], None, result, site_of, self.ordinal)
                elif self.cuts.stemming and effect == VALUE:
                    self.cuts.to_array(args[0], func, self.ordinal)
        elif effect == INDICES:
            parts = result if isinstance(result, tuple) else (result,)
            for part in parts:
                if isinstance(part, torch.Tensor) and not part.requires_grad:
                    site_of = partial(self._site, caller)
                    self.cuts.look(func, args, kwargs, part, site_of, self.ordinal)
        elif effect == GRADIENT:
            tensor = args[0]
            if tensor.is_leaf:
                if self._in_step(caller):
                    self.training.missed(tensor)
            elif not tensor.retains_grad:
                node = torchapi.node_number(tensor.grad_fn)
                self.grad_reads.append((self._site(caller), node))
                del self.grad_reads[:-GRAD_READS_KEPT]
        else:
            targets = targets_of(effect, args, kwargs)
            file = caller.f_code.co_filename
            stepping = bool(targets) and targets[0].requires_grad and self._in_step(caller)
            if stepping:
                self.training.wrote(targets)
            if targets:
                when = (self._site(caller), number, self.ordinal, tape.index)
                self.writes.note(targets, func, file, when, stepping)

    def _scope(self, frame: Any) -> int:
        """The site that switches gradients off, `LIBRARY_SCOPE` where a library does for itself."""
        inner = frame
        while frame is not None and frame.f_code.co_filename.endswith(_SCOPES):
            inner, frame = frame, frame.f_back
        if frame is None or not self.users[frame.f_code.co_filename]:
            return LIBRARY_SCOPE
        decorated = getattr(inner.f_locals.get("func"), "__code__", None)
        if inner is not frame and decorated is not None and self.users[decorated.co_filename]:
            return self.sites.of_definition(decorated, frame)
        return self._site(frame)

    def _in_step(self, frame: Any) -> bool:
        """Whether a call comes from an optimizer's step: of torch's or of one of the program's."""
        code = frame.f_code
        if self.stepping.files[code.co_filename]:
            return bool(code.co_name != "zero_grad")
        if torch.is_grad_enabled() and code.co_name != "step":
            return False
        for _ in range(4):
            if frame is None:
                return False
            if frame.f_code.co_name == "step":
                return isinstance(frame.f_locals.get("self"), torch.optim.Optimizer)
            frame = frame.f_back
        return False

    def look_for_cut(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any] | None, result: Any
    ) -> None:
        """See whether a call that made no node, but a tensor, cut history off."""
        site_of = partial(self._site, sys._getframe(2))
        self.cuts.look(func, args, kwargs, result, site_of, self.ordinal)

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
        if self._by_library(frame):
            flags |= LIBRARY
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
            log.number.add(torchapi.sequence_number() if torchapi.sequence_number else 0)
            log.made.append(0)
            log.root.add(roots[0][0] if roots else -1)
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
        if self.lines and not parent:
            if due(log.turns[site]):
                self._look(frame, log.thread[-1])
            if self.training.due:
                self._name_parameters(frame)
        stack.append(ordinal)
        return ordinal

    def _by_library(self, frame: Any) -> bool:
        """Whether a library, and not the program itself, called backward or grad."""
        while frame is not None and not self.users[frame.f_code.co_filename]:
            if not frame.f_code.co_filename.endswith(_ENTRANCES):
                return True
            frame = frame.f_back
        return False

    def _look(self, frame: Any, thread: int) -> None:
        """See what the running functions hold on to, and measure what is new."""
        from onegraph.recorder import autopsy

        frames = autopsy.live_frames(frame)
        for found in self.growth.look(frames, self.users, self._starts(thread)):
            self._measure(found)

    def _measure(self, found: Growing) -> None:
        from onegraph.recorder import autopsy

        tensors, found.sample = found.sample, None
        found.nodes, found.bytes = autopsy.in_child(lambda _: size(tensors)) or (0, 0)

    def _starts(self, thread: int) -> list[int]:
        """A thread's sequence number at each of its engine calls."""
        log = self.engine
        return [n for n, t in zip(log.number, log.thread, strict=True) if t == thread]

    def _name_parameters(self, frame: Any) -> None:
        """Look up what parameters that get no gradient are called, while that can be found."""
        from onegraph.recorder import autopsy

        self.training.due = False
        self.training.lookups += 1
        wanted = {
            *self.training.lost(1),
            *(leaf for c in self.cuts.known.values() for leaf in c.leaves),
        }
        self.training.names.update(autopsy.parameters_now(self.users, frame, wanted))

    def finish(self) -> None:
        """See what the program still holds when it ends, that no backward ever used."""
        tape = self.tape()
        if tape is not None and self.lines:
            for found in self.growth.unused(self.users, self._starts(tape.index)):
                self._measure(found)

    def end(self, ordinal: int) -> None:
        """Note that an engine call is over, however it ended."""
        if torchapi.sequence_number is not None:
            made = torchapi.sequence_number() - self.engine.number[ordinal - 1]
            self.engine.made[ordinal - 1] = min(max(made, 0), MADE_AT_MOST)
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
                name = node.name()
                marks.append(self.mark(number, name))
                if name.startswith(ZERO_KINDS):
                    self.training.zero_nodes.setdefault(number, name)
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
