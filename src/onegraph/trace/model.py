"""What was seen of one process, and what can be said about it: plain values, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from onegraph.trace.graph import Graph

Level = Literal["error", "warning", "note"]
Certainty = Literal["proved", "likely"]
Effect = Literal["same", "truncates", "changes"]
OutcomeKind = Literal["raised", "finished", "interrupted"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of the user's call chain; lines count from 1, columns from 0 in code points."""

    file: str
    line: int
    function: str
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """An exact expression of the user's program, with the call chain of its first run.

    ``via`` names the library module whose code did the recorded work, None for the user's own.
    """

    file: str
    line: int
    column: int | None
    end_line: int | None
    end_column: int | None
    function: str
    code: str
    frames: tuple[Frame, ...] = ()
    count: int | None = None
    step: int | None = None
    label: str | None = None
    via: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        """File and line, as a report prints them."""
        return self.file, self.line


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One run of the autograd engine.

    Args:
        ordinal: place among all engine calls of the process, from 1.
        step: place among those the program made itself, from 1; inner calls have their outer's.
        turn: how many times this site had called the engine by then, from 1.
        kind: ``backward`` accumulates into ``.grad``; ``grad`` returns gradients.
        site: index into `Trace.sites`, or None when no user line was seen.
        parent: ordinal of the engine call this one ran inside of, or None.
        roots: sequence number of every node the call started from.
        outputs: the output of its node that each root is.
        reached: ranges of `Trace.graph` indices it walked, where that is known, else None.
        used: (node, output) pairs it came through, of nodes with several outputs, where known.
        weighted: whether it was given explicit output gradients.
        inside: ``checkpoint`` when a reentrant checkpoint made the call, else None.
    """

    ordinal: int
    step: int
    turn: int
    kind: Literal["backward", "grad"]
    site: int | None
    retain: bool
    create: bool
    thread: int
    parent: int | None = None
    roots: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    reached: tuple[tuple[int, int], ...] | None = None
    used: tuple[tuple[int, int], ...] | None = None
    weighted: bool = False
    inside: str | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """A name in a live frame through which a tensor with history can be reached.

    ``node`` indexes `Trace.graph` when the failing graph holds the tensor's node, else None.
    ``depth`` counts live user frames outwards from the failing line; None for a module's global.
    """

    name: str
    number: int
    thread: int | None
    site: int | None
    epoch: int | None
    kind: str
    output: int
    node: int | None
    depth: int | None
    steps: int
    holder: str = "local"
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """An in-place change of a tensor that the graph had saved.

    Args:
        step: how many engine calls had begun.
        op: the function that wrote, as torch calls it: ``add_``, ``__setitem__``.
        tensors: how many tensors the expression wrote in that time.
        silent: whether it ran where no history is kept: under no_grad, or on an alias without one.
        step_of_optimizer: whether it was a part of an optimizer's step.
        library: the library file that made the call, where it was not the user's own.
    """

    site: int | None
    step: int
    op: str
    tensors: int
    silent: bool = False
    step_of_optimizer: bool = False
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """Leaf tensors written in place, without history, after ``epoch`` engine calls had begun."""

    site: int | None
    epoch: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The saved tensor that was found changed.

    Args:
        node: the node that had saved it.
        kind: what the tensor is to the program, as far as it could be told.
        names: live names of it, best first; of a leaf that of the parameter.
        attribute: what the node calls it: ``self``, ``result``, ``weight``.
        writes: all that wrote to its memory since, oldest first.
        certain: whether the tensor was identified, and not just matched by its versions.
    """

    node: int
    kind: Literal["parameter", "buffer", "leaf", "tensor"]
    names: tuple[str, ...]
    attribute: str
    shape: tuple[int, ...]
    transposed: bool
    version_saved: int | None
    version_now: int | None
    writes: tuple[Write, ...]
    certain: bool = True


@dataclass(frozen=True, slots=True)
class CutOff:
    """A line that took a tensor with history and gave one without.

    Args:
        cause: which cause of the contract it is.
        func: the function that did it, as torch calls it.
        off: the line that had switched gradients off, where that was the reason.
        names: the parameters and other leaves known to lie behind what was cut.
        runs: how often it did.
        epoch: how many engine calls had begun when it last did.
        joined: whether what came out went into a graph all the same.
    """

    site: int | None
    cause: str
    func: str
    off: int | None
    names: tuple[str, ...]
    runs: int
    epoch: int
    joined: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """A parameter of an optimizer that never got a gradient, or only zeros.

    Args:
        steps: in how many steps that was seen.
        cuts: which of `Trace.cuts` it lay behind.
    """

    name: str
    kind: Literal["none", "zero"]
    steps: int
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Growing:
    """A name that holds on to a graph, or graphs, that grow with every step.

    Args:
        made: the line that made the latest of what it holds.
        container: whether it is a collection; otherwise it is one tensor, such as a running total.
        steps: over how many engine calls it was seen to grow, 0 where no backward came after.
        nodes, bytes: of all it held when it was measured; bytes of saved tensors.
        per: of how many steps or results that was.
    """

    name: str
    made: int | None
    container: bool
    tensors: int
    steps: int
    nodes: int
    bytes: int
    per: int


@dataclass(frozen=True, slots=True)
class Retained:
    """A line that keeps the graph it walks, which nothing used in the steps that were watched."""

    site: int | None
    create: bool
    watched: int
    turns: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An operation on the graph that raised, with what was read off the graph just then."""

    kind: Literal["engine", "saved-access", "operation"]
    type: str
    message: str
    step: int | None
    site: int | None
    frames: tuple[Frame, ...]
    raising: int | None = None
    raising_certain: bool = True
    overwritten: Overwritten | None = None
    owner: str | None = None
    complete: bool = True
    # What the exception is about: live names, the line that made it, the cut it stems from.
    names: tuple[str, ...] = ()
    made: int | None = None
    cut: int | None = None
    # The library file whose code was refused, None where it was the user's own.
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """Nodes that several engine calls walked without any harm (only noted on request)."""

    steps: tuple[int, ...]
    nodes: int
    kinds: tuple[str, ...]
    built: int | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A user file as it stood when the trace was made."""

    text: str
    state: Literal["ok", "changed", "gone"] = "ok"


@dataclass(frozen=True, slots=True)
class Process:
    """The process a trace or report speaks of."""

    pid: int
    rank: int | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Trace:
    """Everything that was seen and is worth keeping; the only input of the rules."""

    versions: dict[str, str]
    command: tuple[str, ...]
    process: Process
    sites: tuple[Site, ...] = ()
    calls: tuple[EngineCall, ...] = ()
    graph: Graph = field(default_factory=Graph.empty)
    bindings: tuple[Binding, ...] = ()
    failure: Failure | None = None
    walked: tuple[Walked, ...] = ()
    stepped: tuple[Stepped, ...] = ()
    cuts: tuple[CutOff, ...] = ()
    lost: tuple[Lost, ...] = ()
    # Whether any step of an optimizer changed a parameter.
    moved: bool = False
    # (line, function) of what was walked and has a derivative that is zero everywhere.
    zero: tuple[tuple[int, str], ...] = ()
    growing: tuple[Growing, ...] = ()
    retained: tuple[Retained, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)
    blind: tuple[str, ...] = ()
    lines_recorded: bool = True
    reruns: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """Lines of a file to replace by a statement, or to follow by it when ``after``.

    An empty text removes the lines. The statement is indented as the first of them is.
    """

    file: str
    line: int
    end_line: int
    text: str
    after: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """Code to print with a remedy, and what it changes where that can be told."""

    text: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do about a finding, in words, with what it does to the gradient."""

    title: str
    effect: Effect
    effect_note: str
    patch: str | None = None
    verified: bool | None = None
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """What the freed graph and the failing graph have in common."""

    nodes: int
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, as every face of the report tells it (see the public report contract)."""

    level: Level
    symptom: str
    cause: str
    certainty: Certainty
    summary: str
    names: tuple[str, ...] = ()
    sites: dict[str, tuple[Site, ...]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    shared: Shared | None = None
    remedies: tuple[Remedy, ...] = ()
    headline: str = ""
    why: str = ""
    avoid: str = ""
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The whole answer for one process; `onegraph.trace.codec` writes it as JSON."""

    versions: dict[str, str]
    command: tuple[str, ...]
    process: Process
    outcome: OutcomeKind
    exit_status: int
    exception: dict[str, str] | None
    findings: tuple[Finding, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)
