"""Reads a graph into columns. Runs in a forked child, see `autopsy`: it wraps every node."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from torch.autograd.function import BackwardCFunction

from onegraph.recorder.torchapi import CHANGED_MARK, FREED_MARKS, node_number
from onegraph.trace import Graph, State

LIMIT = 2_000_000
# So many states are read at least, where there are as many, and one that is freed.
STATES = 100_000


class Walk:
    """A graph read from its roots, with torch's node objects kept beside the columns."""

    def __init__(self, roots: Iterable[Any], limit: int = LIMIT) -> None:
        self.nodes: list[Any] = []
        self.index: dict[Any, int] = {}
        self.start = array("q", [0])
        self.target = array("i")
        self.output = array("i")
        self.complete = True
        self.roots: list[int] = []
        for root in roots:
            if root is not None:
                self.roots.append(self._add(root))
        position = 0
        nodes, index, target, output = self.nodes, self.index, self.target, self.output
        while position < len(nodes):
            for other, nr in nodes[position].next_functions:
                if other is None:
                    target.append(-1)
                    output.append(0)
                    continue
                known = index.get(other)
                if known is None:
                    if len(nodes) >= limit:
                        self.complete = False
                        target.append(-1)
                        output.append(0)
                        continue
                    known = index[other] = len(nodes)
                    nodes.append(other)
                target.append(known)
                output.append(nr)
            self.start.append(len(target))
            position += 1
        self.number = array("q", [node_number(node) for node in nodes])

    def _add(self, node: Any) -> int:
        known = self.index.get(node)
        if known is None:
            known = self.index[node] = len(self.nodes)
            self.nodes.append(node)
        return known

    def graph(
        self,
        where: dict[int, tuple[int, int, int, int]],
        leaves: dict[int, str],
        freed_by: int,
    ) -> Graph:
        """The columns, given (thread, site, call, epoch) of the nodes that were seen made.

        ``freed_by`` is the last engine call that can have freed one of them.
        """
        unseen = (-1, -1, -1, -1)
        places = [where.get(position, unseen) for position in range(len(self.nodes))]
        thread, site, call, epoch = zip(*places, strict=True) if places else ((), (), (), ())
        kinds: dict[str, int] = {}
        kind = array("i", [kinds.setdefault(node.name(), len(kinds)) for node in self.nodes])
        old = [position for position, made in enumerate(epoch) if made < freed_by]
        scalar = bytearray(len(self.nodes))
        if len(self.nodes) <= 50_000:
            for position, node in enumerate(self.nodes):
                scalar[position] = _is_scalar(node)
        return Graph(
            kinds=tuple(kinds),
            kind=kind,
            number=self.number,
            thread=array("i", thread),
            site=array("i", site),
            call=array("q", call),
            epoch=array("i", epoch),
            state=self._states(old),
            start=self.start,
            target=self.target,
            output=self.output,
            leaves=leaves,
            scalar=bytes(scalar),
            roots=tuple(self.roots),
            complete=self.complete,
        )

    def _states(self, positions: list[int]) -> bytes:
        """The states of some nodes, UNKNOWN for the others.

        The engine runs nodes by descending number, so the highest freed ones matter. A freed
        tensor is told by an exception: of very many nodes only those are read.
        """
        state = bytearray([State.UNKNOWN]) * len(self.nodes)
        number = self.number
        readers: dict[type, StateReader] = {}
        found = False
        for count, position in enumerate(sorted(positions, key=lambda p: -number[p])):
            if found and count >= STATES:
                break
            node = self.nodes[position]
            reader = readers.get(type(node))
            if reader is None:
                reader = readers[type(node)] = StateReader(node)
            state[position] = reader(node)
            found = found or state[position] == State.FREED
        return bytes(state)


def _is_scalar(node: Any) -> bool:
    try:
        shape = node._input_metadata[0].shape
        return all(int(n) == 1 for n in shape)
    except Exception:
        return False


class StateReader:
    """Tells what became of the tensors that nodes of one type had saved.

    Reading ``_saved_x`` runs the user's unpack hooks, so a tensor under a hook counts as unknown.
    """

    def __init__(self, node: Any) -> None:
        self._custom = isinstance(node, BackwardCFunction)
        # It drops the function it wraps, which no attribute shows.
        self._opaque = node.name() == "CopySlices"
        names = [n for n in dir(type(node)) if n.startswith("_raw_saved_")]
        self.names = [(n, "_saved_" + n[len("_raw_saved_") :]) for n in names]

    def __call__(self, node: Any) -> State:
        if self._custom:
            return self._of_custom(node)
        if self._opaque:
            return State.UNKNOWN
        found = State.NOTHING
        for raw_name, name in self.names:
            state = self.one(node, raw_name, name)
            if state in (State.FREED, State.OVERWRITTEN):
                return state
            if state is not State.NOTHING:
                found = state
        return found

    @staticmethod
    def one(node: Any, raw_name: str, name: str) -> State:
        """The state of one saved tensor (or list of them)."""
        try:
            raw = getattr(node, raw_name)
        except RuntimeError as error:
            return _judge(error)
        except Exception:
            return State.UNKNOWN
        parts = list(raw) if isinstance(raw, (list, tuple)) else [raw]
        if not parts:
            return State.NOTHING
        try:
            if any(part is not None and part.unpack_hook is not None for part in parts):
                return State.UNKNOWN
        except AttributeError:
            pass
        try:
            value = getattr(node, name)
        except RuntimeError as error:
            return _judge(error)
        except Exception:
            return State.UNKNOWN
        if isinstance(value, (list, tuple)):
            return State.ALIVE if any(v is not None for v in value) else State.NOTHING
        return State.NOTHING if value is None else State.ALIVE

    def _of_custom(self, node: Any) -> State:
        try:
            hooks = [raw.unpack_hook for raw in node._raw_saved_tensors]
        except RuntimeError as error:
            return _judge(error)
        except Exception:
            hooks = []
        if any(hook is not None for hook in hooks):
            return State.UNKNOWN
        try:
            saved = node.saved_tensors
        except RuntimeError as error:
            return _judge(error)
        except Exception:
            return State.UNKNOWN
        return State.ALIVE if any(t is not None for t in saved) else State.NOTHING


def _judge(error: RuntimeError) -> State:
    text = str(error)
    if any(mark in text for mark in FREED_MARKS):
        return State.FREED
    if CHANGED_MARK in text:
        return State.OVERWRITTEN
    return State.UNKNOWN
