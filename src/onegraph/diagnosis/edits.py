"""Edited lines to print with a remedy, only where the source shows that they would work."""

from __future__ import annotations

import re

from onegraph.diagnosis.naming import last_part
from onegraph.diagnosis.statement import Statement
from onegraph.diagnosis.telling import Telling
from onegraph.trace import Binding, Change, Edit, Frame

# More than these are not listed one by one.
MOST_NAMES = 3

_PLAIN = re.compile(r"[^\W\d]\w*")
_PATH = re.compile(r"[^\W\d][\w.]*")
_ITEM = re.compile(r"""([^\W\d][\w.]*)\[(-?\d+|"[^"\\]*")\]""")
_REBUILT = {
    "tuple": "tuple(h.detach() for h in {})",
    "list": "[h.detach() for h in {}]",
    "dict": "{{k: h.detach() for k, h in {}.items()}}",
}
_ZEROED = (".zero_()", ".fill_(0)", ".fill_(0.0)", "[:] = 0", "[:] = 0.0", "[...] = 0")
_COMPOUND = ("for ", "while ", "if ", "elif ", "with ", "async ", "try", "def ", "class ", "return")


def replaced(t: Telling, role: str, text: str | None) -> Edit | None:
    """The statement around a role's best site, replaced by ``text``."""
    found = t.sites.get(role)
    statement = t.syntax.statement(found[0].frames[0]) if found and found[0].frames else None
    if not found or statement is None or text is None or text == statement.text:
        return None
    return Edit(text, (Change(found[0].file, statement.line, statement.end_line, text),))


def with_argument(t: Telling, role: str, argument: str) -> Edit | None:
    """A role's call with one more argument, None when it is not one whole call on one line."""
    call, statement = t.code(role), t.statement(role)
    if not call.endswith(")") or argument.partition("=")[0] in call or statement.count(call) != 1:
        return None
    head = call[:-1]
    edited = f"{head}{argument})" if head.endswith("(") else f"{head}, {argument})"
    edit = replaced(t, role, statement.replace(call, edited))
    return Edit(edited, edit.changes) if edit is not None else None


def summed(t: Telling, first: str, second: str) -> Edit | None:
    """Both roles' losses added up and back-propagated once, where the second one was."""
    one, two = t.loss(first), t.loss(second)
    if one is None or two is None or one == two:
        return None
    text = f"({one} + {two}).backward()"
    edit = replaced(t, second, text)
    dropped = replaced(t, first, "")
    if edit is None or dropped is None:
        return None
    places = [
        (frames[0].file, frames[0].function) for frames in (t.frames(first), t.frames(second))
    ]
    if places[0] != places[1]:
        return None
    return Edit(text, (*dropped.changes, *edit.changes))


def detached_where_read(t: Telling) -> Edit | None:
    """The joined statement with the old tensors detached.

    Only where their names still hold those very tensors, and where the statement takes in all of
    them: an edit of another name, or of some, would be wrong.
    """
    text = t.statement("joined")
    if not t.carried or not text:
        return None
    if text.startswith(_COMPOUND) and not text.startswith("return "):
        return None
    edited: str | None = text
    if not _only_reader(t):
        return None
    for spelled in {_spelled(t, binding, text) for binding in t.carried}:
        if spelled is None or edited is None:
            return None
        edited = _edited(edited, spelled, f"{spelled}.detach()")
    return replaced(t, "joined", edited)


def _only_reader(t: Telling) -> bool:
    """Whether all that crosses over does so in the joined statement."""
    story, frames = t.story, t.frames("joined")
    statement = t.syntax.statement(frames[0]) if frames else None
    if statement is None:
        return False
    for bridge in story.crossing or story.in_share:
        site = story.graph.site[bridge.new]
        chain = story.trace.sites[site].frames if site >= 0 else ()
        if not any(
            f.file == frames[0].file and statement.line <= f.line <= statement.end_line
            for f in chain
        ):
            return False
    return True


def detached_before(t: Telling, role: str) -> Edit | None:
    """The one statement between where the tensor was made and a role's call that reads it."""
    made, call = t.frames("built"), t.frames(role)
    if t.name is None or not made or not call or _PATH.fullmatch(t.name) is None:
        return None
    if (made[0].file, made[0].function) != (call[0].file, call[0].function):
        return None
    readers = t.syntax.readers(made[0], t.name, call[0].line)
    if len(readers) != 1 or readers[0].text.startswith(_COMPOUND):
        return None
    (reader,) = readers
    text = _edited(reader.text, t.name, f"{t.name}.detach()")
    if text is None:
        return None
    return Edit(text, (Change(made[0].file, reader.line, reader.end_line, text),))


def detached_between_steps(t: Telling) -> Edit | None:
    """Assignments to put after the backward, in the names that are visible there.

    By then a name must hold what the next step takes in: one that still holds what the failing
    step took in is given its value later.
    """
    if not t.carried or len(t.carried) > MOST_NAMES or t.held:
        return None
    frames = [step_frame(t, binding) for binding in t.carried]
    frame = frames[0]
    if frame is None or any(other != frame for other in frames):
        return None
    statement = t.syntax.statement(frame)
    if statement is None or statement.text.startswith(_COMPOUND):
        return None
    if any(_overtaken(t, binding, frame) for binding in t.carried):
        return None
    text = _assignment(t.carried)
    if text is None:
        return None
    if len(t.carried) == 1 and t.syntax.differentiated(t.carried[0].name):
        text = f"{text}.requires_grad_()"
    return Edit(text, (Change(frame.file, statement.line, statement.end_line, text, after=True),))


def _overtaken(t: Telling, binding: Binding, frame: Frame) -> bool:
    """Whether the name gets another value before the next step reads it: no use to detach it."""
    if _PLAIN.fullmatch(binding.name) is None:
        return False
    home = (frame.file, frame.function)
    taken = [f for f in t.frames("joined") if (f.file, f.function) == home]
    return t.syntax.rebinds(frame, binding.name, taken[0].line if taken else frame.line)


def step_frame(t: Telling, binding: Binding | None) -> Frame | None:
    """The frame of the failing call's chain in which the tensor's name can be bound anew.

    It is one that runs once a step: none further out than the loop that the steps are turns of.
    Where another line's call ends the step, it is that call's frame of the same function.
    """
    frames = t.frames("failed")
    if binding is None or not frames:
        return None
    plain = _PLAIN.fullmatch(binding.name) is not None
    if plain and binding.holder == "closure":
        return None  # binding a name that an outer function lends would make a new local one
    if binding.depth is not None:
        level = binding.depth
    elif plain:
        level = next((k for k, f in enumerate(frames) if f.function == "<module>"), len(frames))
    else:
        level = 0
    looped = (k for k, f in enumerate(frames) if t.syntax.loops(f))
    if level >= len(frames) or level > next(looped, level):
        return None
    frame = frames[level]
    if t.same_line:
        return frame
    same = [f for f in t.frames("freed") if (f.file, f.function) == (frame.file, frame.function)]
    return same[0] if same else None


def _assignment(bindings: tuple[Binding, ...]) -> str | None:
    """One statement that binds each of the names to its tensor, detached."""
    matches = [_ITEM.fullmatch(b.name) for b in bindings]
    containers = {match.group(1) for match in matches if match}
    holders = {b.holder for b in bindings}
    holder = bindings[0].holder if len(holders) == 1 else ""
    if all(matches) and len(containers) == 1 and holder in _REBUILT:
        (whole,) = containers
        return f"{whole} = {_REBUILT[holder].format(whole)}"
    owners = {b.name.rpartition(".")[0] for b in bindings}
    if holder == "field" and len(owners) == 1:
        (owner,) = owners
        fields = ", ".join(f"{last_part(b.name)}={b.name}.detach()" for b in bindings)
        return f"{owner} = {owner}._replace({fields})" if _PATH.fullmatch(owner) else None
    # What grows or goes by another key in every step is not mended element by element.
    if not holders <= {"local", "global", "attribute", "default"}:
        return None
    if not all(_PATH.fullmatch(b.name) for b in bindings):
        return None
    left = ", ".join(b.name for b in bindings)
    return f"{left} = {', '.join(f'{b.name}.detach()' for b in bindings)}"


def _edited(text: str, name: str, replacement: str) -> str | None:
    """A statement with its one read of ``name`` replaced, None when that is not clear-cut."""
    head, assign, tail = text.partition(" = ")
    body = tail if assign else text
    found: list[int] = []
    position = body.find(name)
    while position >= 0:
        before = body[position - 1] if position else " "
        after = body[position + len(name)] if position + len(name) < len(body) else " "
        if not (before.isalnum() or before in "_.") and not (after.isalnum() or after == "_"):
            found.append(position)
        position = body.find(name, position + 1)
    if len(found) != 1:
        return None
    at = found[0]
    edited = body[:at] + replacement + body[at + len(name) :]
    return f"{head}{assign}{edited}" if assign else edited


def _spelled(t: Telling, binding: Binding, statement: str) -> str | None:
    """A live name as a statement spells it, which is perhaps from another function's view."""
    ending = last_part(binding.name)
    others = (*t.naming.names, *t.naming.read) if t.naming is not None else ()
    for name in (binding.name, *others):
        # An element is not its container, which has no detach(), and `x[i]` is not all of `x`.
        same = last_part(name) == ending and name.endswith("]") == binding.name.endswith("]")
        if same and _edited(statement, name, name) is not None:
            return name
    return None


def reset_anew(t: Telling) -> Edit | None:
    """`h.zero_()` and its like, which keep the history, as a new tensor."""
    found = t.sites.get("joined")
    statement: Statement | None = t.syntax.statement(found[0].frames[0]) if found else None
    if statement is None or t.name is None or not _PATH.fullmatch(t.name):
        return None
    written = statement.text.removeprefix(t.name).removeprefix(".data")
    if not statement.text.startswith(t.name) or written not in _ZEROED:
        return None
    return replaced(t, "joined", f"{t.name} = torch.zeros_like({t.name})")
