"""What the user's source says about a recorded expression: what it assigns and what it reads.

Everything here is inferred from text, so it only ever adds names to facts read off the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from onegraph.diagnosis.statement import (
    COLLECT,
    Statement,
    callee_of,
    head_of,
    is_plain,
    lines_of,
    parsed,
    path_to,
    places_of,
    reads_of,
    spell,
    statement_at,
    stores_of,
    without_index,
)
from onegraph.trace import Frame, Site, Source


class Syntax:
    """Answers questions about the sources of one trace; never raises on odd text."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources

    def statement(self, frame: Frame) -> Statement | None:
        """The statement that ``frame`` is at, None where the source cannot tell."""
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return None
        return statement_at(source.text, frame.line, frame.column, frame.end_line, frame.end_column)

    def site(self, site: Site, level: int) -> Site:
        """The expression at an outer level of a site's call chain."""
        frame = site.frames[level]
        return Site(
            file=frame.file,
            line=frame.line,
            column=frame.column,
            end_line=frame.end_line,
            end_column=frame.end_column,
            function=frame.function,
            code=self._excerpt(frame),
            frames=site.frames[level:],
        )

    def line(self, file: str, number: int) -> str:
        """A line of a source, "" where there is none."""
        source = self._sources.get(file)
        lines = lines_of(source.text) if source is not None else []
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def _excerpt(self, frame: Frame) -> str:
        source = self._sources.get(frame.file)
        lines = lines_of(source.text) if source is not None else []
        end = frame.end_line or frame.line
        if not 0 < frame.line <= end <= len(lines):
            return ""
        part = lines[frame.line - 1 : end]
        if frame.column is None or frame.end_column is None:
            return part[0].strip()
        part[-1] = part[-1][: frame.end_column]
        part[0] = part[0][frame.column :]
        return "\n".join(part)

    def collectors(self, name: str) -> list[tuple[str, int, str]]:
        """(file, line, collection) of the calls that put something into a collection so named."""
        ending = name.rpartition(".")[2]
        return [
            (file, line, spelled)
            for file, source in self._sources.items()
            if source.text
            for line, spelled in _collectors(source.text)
            if spelled.rpartition(".")[2] == ending
        ]

    def collected(self, frame: Frame) -> tuple[int, str] | None:
        """(line, collection) where the result of the statement at a frame is collected after it."""
        source = self._sources.get(frame.file)
        statement = self.statement(frame)
        if source is None or not source.text or statement is None:
            return None
        return _collected(source.text, statement.end_line, statement.stores)

    def rebound(self, frame: Frame) -> tuple[int, tuple[str, ...]] | None:
        """(line, names) where the function of ``frame`` rebinds a loop's name for a parameter."""
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return None
        return _rebound(source.text, frame.line)

    def out_of_place(self, frame: Frame) -> str | None:
        """The statement at a frame, rewritten to make a new tensor instead of writing over one.

        None where it is not a plain in-place operation on a name or an attribute.
        """
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return None
        return _out_of_place(source.text, frame.line, frame.end_line or frame.line)

    def stored_in_loop(self, frame: Frame, name: str) -> bool | None:
        """Whether a loop around ``frame`` stores into the variable; None where it never is."""
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return None
        return _stored_in_loop(source.text, frame.line, name)

    def readers(self, frame: Frame, name: str, last: int) -> list[Statement]:
        """The statements after the one that ``frame`` is at, up to a line, that read a name."""
        source, first = self._sources.get(frame.file), self.statement(frame)
        if source is None or not source.text or first is None:
            return []
        found: dict[int, Statement] = {}
        for line in range(first.end_line + 1, last + 1):
            statement = statement_at(source.text, line, None, None, None)
            if statement is not None and name in statement.reads:
                found[statement.line] = statement
        return list(found.values())

    def rebinds(self, frame: Frame, name: str, until: int) -> bool:
        """Whether a plain name gets another value on the way to line ``until`` of the next turn.

        The way goes from the line that ``frame`` is at to the end of the loop around it and on
        from its head; only statements that run in every turn count, and none that read the name.
        """
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return False
        return _rebinds(source.text, frame.line, name, until)

    def can_be_none(self, name: str) -> bool:
        """Whether some source assigns None to a variable, or to an attribute of its name."""
        ending = name.rpartition(".")[2]
        return any(
            ending in _nones(source.text) for source in self._sources.values() if source.text
        )

    def differentiated(self, name: str) -> bool:
        """Whether some source asks for the gradient of a tensor called so, or makes it a leaf."""
        ending = name.rpartition(".")[2]
        return any(
            ending in _differentiated(source.text)
            for source in self._sources.values()
            if source.text
        )

    def loops(self, frame: Frame) -> tuple[int, ...]:
        """First lines of the loops around ``frame`` within its function, outermost first."""
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return ()
        return _loops(source.text, frame.line)


@lru_cache(maxsize=512)
def _loops(text: str, line: int) -> tuple[int, ...]:
    tree = parsed(text)
    if tree is None:
        return ()
    found: list[int] = []
    for node in path_to(tree, line, line):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found = []
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            body = node.body[0].lineno, node.body[-1].end_lineno or line
            if body[0] <= line <= body[1] or isinstance(node, ast.While):
                found.append(node.lineno)
    return tuple(found)


@lru_cache(maxsize=512)
def _stored_in_loop(text: str, line: int, name: str) -> bool | None:
    tree = parsed(text)
    if tree is None:
        return None
    scope: ast.AST = tree
    outermost: ast.AST | None = None
    for node in path_to(tree, line, line):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            scope, outermost = node, None
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and outermost is None:
            outermost = node
    if not _stores_into(scope, name):
        return None
    return outermost is not None and _stores_into(outermost, name)


@lru_cache(maxsize=64)
def _collectors(text: str) -> tuple[tuple[int, str], ...]:
    tree = parsed(text)
    return tuple(
        (node.lineno, spell(without_index(node.func.value)))
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in COLLECT
    )


@lru_cache(maxsize=64)
def _collected(text: str, line: int, names: tuple[str, ...]) -> tuple[int, str] | None:
    tree = parsed(text)
    scope: ast.AST | None = tree
    for node in path_to(tree, line, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = node
    found: list[tuple[int, str]] = []
    for node in ast.walk(scope) if scope is not None else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in COLLECT
            and node.lineno > line
            and any(set(reads_of(argument)) & set(names) for argument in node.args)
        ):
            found.append((node.lineno, spell(without_index(node.func.value))))
    return min(found) if found else None


@lru_cache(maxsize=64)
def _rebound(text: str, line: int) -> tuple[int, tuple[str, ...]] | None:
    tree = parsed(text)
    scope: ast.AST | None = tree
    for node in path_to(tree, line, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = node
    for loop in ast.walk(scope) if scope is not None else ():
        if not isinstance(loop, ast.For) or "parameters()" not in spell(loop.iter):
            continue
        targets = set(places_of(loop.target))
        for statement in ast.walk(loop):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if name in targets:
                    return statement.lineno, tuple(
                        dict.fromkeys((name, *reads_of(statement.value)))
                    )
    return None


@lru_cache(maxsize=64)
def _out_of_place(text: str, line: int, end_line: int) -> str | None:
    tree = parsed(text)
    holder: ast.stmt | None = None
    for node in path_to(tree, line, end_line) if tree is not None else ():
        if isinstance(node, ast.stmt):
            holder = node
    if isinstance(holder, ast.AugAssign):
        place = holder.target
        operated = spell(ast.BinOp(_loaded(place), holder.op, holder.value))
        if isinstance(place, ast.Subscript):
            whole = spell(without_index(place))
            return f"{whole} = {whole}.clone(); {spell(place)} = {operated}"
        return f"{spell(place)} = {operated}"
    call: ast.AST | None = None
    result = ""
    if isinstance(holder, ast.Assign) and len(holder.targets) == 1:
        target = holder.targets[0]
        if isinstance(target, ast.Subscript) and is_plain(target):
            whole = spell(without_index(target))
            return f"{whole} = {whole}.clone(); {spell(holder)}"
        call, result = holder.value, spell(target)
    elif isinstance(holder, ast.Expr):
        call = holder.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    method, receiver = call.func.attr, call.func.value
    if not method.endswith("_") or method in ("zero_", "fill_", "copy_"):
        return None
    if not isinstance(receiver, (ast.Name, ast.Attribute)) or not is_plain(receiver):
        return None
    arguments = spell(ast.Call(ast.Name("f", ast.Load()), call.args, call.keywords))[1:]
    return f"{result or spell(receiver)} = {spell(receiver)}.{method[:-1]}{arguments}"


def _loaded(node: ast.expr) -> ast.expr:
    """The same place, read instead of stored into."""
    return ast.parse(ast.unparse(node), mode="eval").body


@lru_cache(maxsize=512)
def _rebinds(text: str, line: int, name: str, until: int) -> bool:
    tree = parsed(text)
    loop: ast.AST | None = None
    for node in path_to(tree, line, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            loop = None
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            loop = node
    if not isinstance(loop, (ast.For, ast.While, ast.AsyncFor)):
        return False
    if not isinstance(loop, ast.While) and name in places_of(loop.target):
        return True
    for statement in _every_turn(loop.body):
        on_the_way = line < statement.lineno or statement.lineno < until
        if until > line:
            on_the_way = line < statement.lineno < until
        if statement.lineno == until or not on_the_way:
            continue
        if name in stores_of(statement, None) and name not in set(reads_of(head_of(statement))):
            return True
    return False


def _every_turn(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop's body that no condition can leave out."""
    for statement in body:
        if isinstance(statement, (ast.Try, ast.With, ast.AsyncWith)):
            yield from _every_turn(statement.body)
        else:
            yield statement


@lru_cache(maxsize=64)
def _nones(text: str) -> frozenset[str]:
    names: set[str] = set()
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            value = node.value
            if isinstance(value, ast.Constant) and value.value is None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(n.rpartition(".")[2] for t in targets for n in places_of(t))
    return frozenset(names)


@lru_cache(maxsize=64)
def _differentiated(text: str) -> frozenset[str]:
    names: set[str] = set()
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call):
            continue
        if callee_of(node) == "grad":
            inputs = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "inputs")]
            names.update(n.rpartition(".")[2] for i in inputs for n in reads_of(i))
        elif callee_of(node) == "requires_grad_" and isinstance(node.func, ast.Attribute):
            names.add(spell(node.func.value).rpartition(".")[2])
    return frozenset(names)


def _stores_into(scope: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name
        for node in ast.walk(scope)
    )
