"""Shapes of a failing graph that give a cause away: sums of losses, targets, slices, regions."""

from __future__ import annotations

from onegraph.diagnosis.case import Case
from onegraph.diagnosis.story import Bridge, Story
from onegraph.trace import Graph

# Nodes that hand a tensor on without mixing it into a model's computation.
_PASS = (
    "Index", "Select", "Slice", "View", "Unsafe", "Reshape", "Unsqueeze", "Squeeze", "Expand",
    "T", "Transpose", "Permute", "Add", "Mul", "Div", "Neg", "Softmax", "LogSoftmax", "Sigmoid",
    "Exp", "Log", "Clone", "ToCopy", "Stack", "Cat", "IndexSelect", "Gather", "Alias", "Clamp",
    "Repeat", "Split", "Unbind", "AsStrided", "Rsub", "Sub", "Copy", "Xlogy", "Norm",
    "LinalgVectorNorm",
)  # fmt: skip
# Losses whose second input is the target.
_TARGETED = ("MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "KlDiv", "L1Loss",
             "BinaryCrossEntropyWithLogits", "PoissonNllLoss")  # fmt: skip
# What may stand between a difference and the loss it becomes.
_REDUCE = ("Pow", "Abs", "Mean", "Sum", "Mul", "Div", "Square", "Norm", "LinalgVectorNorm",
           "Sqrt", "Add", "Neg", "Huber", "Log", "Cosh", "Stack", "View", "Where", "Squeeze",
           "Copy", "ToCopy", "Clamp", "SmoothL1Loss")  # fmt: skip
_SUMS = ("Add", "Mul", "Div", "Sum", "Mean", "Stack", "Cat", "View", "Sub", "Unsqueeze",
         "Squeeze")  # fmt: skip
_PARTS = ("Unbind", "Split", "SplitWithSizes", "Chunk", "TensorSplit")
_VIEWS = ("Select", "Slice", "Split", "Unbind", "Narrow", "SplitWithSizes", "Chunk", "Unfold",
          "Diagonal", "AsStrided", "TensorSplit")  # fmt: skip


def base(kind: str) -> str:
    """`Add` for `AddBackward0`."""
    return kind.rstrip("0123456789").removesuffix("Backward")


def running_sum(case: Case) -> bool:
    """Whether the loss is a sum that still holds the losses of earlier backward calls."""
    story, graph, bridge = case.story, case.graph, case.time_bridge
    if bridge is None or not _scalar(graph, bridge.old):
        return False
    number = graph.number[bridge.old]
    was_root = any(
        number in call.roots and call.thread == graph.thread[bridge.old]
        for call in story.trace.calls
        if story.failed is not None and call.ordinal < story.failed.ordinal
    )
    path = _path_down(graph, bridge.new)
    if path is None or not all(base(graph.name(node)) in _SUMS for node in path):
        return False
    if was_root:
        return True
    # A list of losses that is summed anew at every step: its members are still there by name.
    held = case.naming is not None and case.naming.exact and "[" in (case.naming.best or "")
    frames = case.frames(bridge.new)
    statement = case.syntax.statement(frames[0]) if frames else None
    gathers = statement is not None and statement.gathers
    return (held or gathers) and story.rebuilt(bridge.old)


def _scalar(graph: Graph, node: int) -> bool:
    return bool(graph.scalar) and graph.scalar[node] == 1


def _path_down(graph: Graph, end: int) -> list[int] | None:
    """A shortest path from a root to ``end``, both included."""
    came: dict[int, int] = dict.fromkeys(graph.roots, -1)
    queue = list(graph.roots)
    for node in queue:
        if node == end:
            path = [node]
            while came[path[-1]] >= 0:
                path.append(came[path[-1]])
            return path[::-1]
        for _, child, _ in graph.edges(node):
            if child not in came:
                came[child] = node
                queue.append(child)
    return None


def rescales(case: Case) -> bool:
    """Whether all that is new in the failing graph rescales one loss that stood before."""
    graph, bridge = case.graph, case.time_bridge
    if bridge is None or not _scalar(graph, bridge.old):
        return False
    fresh = _above(case.story)
    return all(
        child == bridge.old or child in fresh for node in fresh for _, child, _ in graph.edges(node)
    )


def restated(case: Case) -> bool:
    """Whether the failing root comes from a loss that was back-propagated already."""
    story, graph, bridge = case.story, case.graph, case.time_bridge
    if bridge is None or not _scalar(graph, bridge.old):
        return False
    if case.share_bridge is not None and case.share_bridge.old != bridge.old:
        return False  # the earlier call did not come through this loss
    was_root = story.freed is not None and graph.number[bridge.old] in story.freed.roots
    return was_root or rescales(case)


def _above(story: Story) -> set[int]:
    """The nodes made since the freeing call began."""
    freed = story.freed
    if freed is None:
        return set()
    graph = story.graph
    return {
        n for n in range(len(graph)) if graph.epoch[n] >= freed.ordinal and n not in graph.leaves
    }


def target_side(case: Case, bridge: Bridge) -> bool:
    """Whether the old tensor is what this step's prediction is compared with."""
    graph, story = case.graph, case.story
    slot, node = bridge.slot, bridge.new
    for _ in range(10):
        name = base(graph.name(node))
        if name in _TARGETED and slot == 1:
            return True
        others = [c for s, c, _ in graph.edges(node) if s != slot]
        compares = name in ("Sub", "Rsub") and others and _predicts(story, others, bridge)
        if compares and _only_reduced(graph, node):
            return True
        if name in _TARGETED or name not in _PASS:
            return False
        above = list(graph.parents(node))
        if len(above) != 1:
            return False
        node, slot = above[0]
    return False


def _predicts(story: Story, nodes: list[int], bridge: Bridge) -> bool:
    """Whether the other operand is this step's own: new, and computed from parameters."""
    graph = story.graph
    if story.freed is None:
        return False
    stack = [n for n in nodes if graph.epoch[n] >= story.freed.ordinal]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node in graph.leaves:
            return True
        for _, child, _ in graph.edges(node):
            fresh = child in graph.leaves or graph.epoch[child] >= story.freed.ordinal
            if fresh and child not in seen and child != bridge.old:
                seen.add(child)
                stack.append(child)
    return False


def _only_reduced(graph: Graph, node: int) -> bool:
    """Whether everything above a node only turns it into a loss."""
    seen: set[int] = set()
    stack = [parent for parent, _ in graph.parents(node)]
    while stack:
        parent = stack.pop()
        if parent in seen:
            continue
        seen.add(parent)
        if base(graph.name(parent)) not in _REDUCE:
            return False
        stack.extend(p for p, _ in graph.parents(parent))
    return bool(seen) or node in graph.roots


def compared(case: Case, bridge: Bridge) -> bool:
    """Whether a tensor is used element by element, as a target is, and not multiplied in."""
    name = base(case.graph.name(bridge.new))
    return name in _TARGETED or (name in _PASS and name not in ("T", "Transpose", "Permute"))


def target_in_source(case: Case, bridge: Bridge) -> bool:
    """Whether the source passes the old tensor as the target of a loss function."""
    frames = case.frames(bridge.new)
    statement = case.syntax.statement(frames[0]) if frames else None
    if statement is None or not statement.target_reads:
        return False
    names = set(case.naming.names if case.naming else ())
    return bool(names & set(statement.target_reads)) or set(statement.reads) <= set(
        statement.target_reads
    )


# Where torch spells its own tensor methods in Python: as good as a call of the user's.
_TORCH_PYTHON = ("torch/_tensor.py", "torch/functional.py", "torch/overrides.py")


def sliced(case: Case, bridge: Bridge | None) -> Bridge | None:
    """The bridge to the shared tensor when each loss takes its own slice or block of it."""
    if bridge is None:
        return None
    graph, story = case.graph, case.story
    if base(graph.name(bridge.old)) in _PARTS:
        # Cut into parts before the first backward: this loss uses one part only.
        taken = {b.output for b in _onto(story, bridge.old)}
        if len(taken) > 1 or taken & _used_earlier(case, bridge.old):
            return None
        below = next(((slot, child, out) for slot, child, out in graph.edges(bridge.old)), None)
        if below is None or not _users_own(case, bridge.old, cutting=False):
            return None
        return Bridge(bridge.old, below[1], below[2], below[0])
    uses = _onto(story, bridge.old)
    views = [u for u in uses if u.output == bridge.output and base(graph.name(u.new)) in _VIEWS]
    for use in uses:
        if use.output != bridge.output or base(graph.name(use.new)) not in _VIEWS:
            continue
        if len({b.output for b in _onto(story, use.new)}) > 1:
            continue
        if len(views) > 1 and not _varies(case, use.new):
            continue  # one loss that looks at several fixed places is no loss of a part
        if _users_own(case, use.new, cutting=True):
            return use
    return None


def part_of_root(case: Case) -> Bridge | None:
    """The bridge to the whole when the failing root is itself one part of a tensor."""
    graph = case.graph
    for root in graph.roots:
        if base(graph.name(root)) in (*_PARTS, *_VIEWS):
            for slot, child, output in graph.edges(root):
                return Bridge(root, child, output, slot)
    return None


def _onto(story: Story, old: int) -> list[Bridge]:
    """Every use the failing graph makes of a node's outputs, the harmless ones included."""
    graph = story.graph
    return [
        Bridge(node, old, graph.output[graph.start[node] + slot], slot)
        for node, slot in graph.parents(old)
    ]


def _varies(case: Case, node: int) -> bool:
    frames = case.frames(node)
    statement = case.syntax.statement(frames[0]) if frames else None
    return statement is not None and statement.varies


def _users_own(case: Case, node: int, *, cutting: bool) -> bool:
    """Whether the user's own expression cuts: a loader that takes samples apart is not it."""
    frames = case.frames(node)
    if not frames:
        return False
    via = case.story.trace.sites[case.graph.site[node]].via
    if via is not None and not via.startswith(_TORCH_PYTHON):
        return False
    statement = case.syntax.statement(frames[0])
    if not cutting or statement is None:
        return True
    # A line that runs in every turn with the same index takes the same part every time.
    story = case.story
    fresh = story.freed is not None and story.born_after(node, story.freed)
    return statement.cuts and (statement.varies or not (fresh and story.again))


def compiled_region(case: Case, bridge: Bridge | None) -> bool:
    """Whether only a compiled region makes the two backward calls meet."""
    story, graph = case.story, case.graph
    if "CompiledFunction" not in graph.name(story.raising) or story.freed is None:
        return False
    if bridge is None or "CompiledFunction" not in graph.name(bridge.old):
        return False
    outputs = {b.output for b in (*story.in_share, *story.in_time) if b.old == bridge.old}
    return not outputs & _used_earlier(case, bridge.old)


def _used_earlier(case: Case, node: int) -> set[int]:
    """Outputs of a node that the freeing call is known to have come through."""
    freed = case.story.freed
    if freed is None:
        return set()
    number = case.graph.number[node]
    roots = zip(freed.roots, freed.outputs, strict=False)
    used = {output for root, output in roots if root == number}
    return used | {output for member, output in freed.used or () if member == node}
