"""What the user's source says about a recorded expression: what it assigns and what it reads.

Everything here is inferred from text, so it only ever adds names to facts read off the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache

from onegraph.trace import Frame, Site, Source

_COLLECT = {"append", "appendleft", "add", "extend", "insert", "push", "put", "setdefault"}
# Attributes and methods that say something about a tensor without using its values.
_ABOUT = {"shape", "size", "dtype", "device", "ndim", "dim", "numel", "detach", "item", "data",
          "__len__", "tolist", "numpy"}  # fmt: skip
_LOSS_WORDS = ("loss", "criterion", "cross_entropy", "kl_div", "mse", "nll", "bce", "huber")
_CUTS = {"split", "chunk", "unbind", "narrow", "select", "tensor_split", "hsplit", "vsplit",
         "unfold", "take", "diagonal"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: the names it stores into and the names the expression in it reads."""

    stores: tuple[str, ...]
    reads: tuple[str, ...]
    target_reads: tuple[str, ...]
    cuts: bool
    varies: bool
    text: str
    gathers: bool
    collects: bool
    written: str | None
    line: int
    end_line: int


class Syntax:
    """Answers questions about the sources of one trace; never raises on odd text."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources

    def statement(self, frame: Frame) -> Statement | None:
        """The statement that ``frame`` is at, None where the source cannot tell."""
        source = self._sources.get(frame.file)
        if source is None or not source.text:
            return None
        return _statement(source.text, frame.line, frame.column, frame.end_line, frame.end_column)

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
        lines = _lines(source.text) if source is not None else []
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def _excerpt(self, frame: Frame) -> str:
        source = self._sources.get(frame.file)
        lines = _lines(source.text) if source is not None else []
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
            statement = _statement(source.text, line, None, None, None)
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


@lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _lines(text: str) -> list[str]:
    return text.splitlines()


@lru_cache(maxsize=64)
def _imported(text: str) -> frozenset[str]:
    """Names that imports bind: `F` in `F.relu(x)` is not a tensor."""
    tree = _tree(text)
    names: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((a.asname or a.name).partition(".")[0] for a in node.names)
    return frozenset(names)


def _covers(node: ast.AST, line: int, end_line: int) -> bool:
    first = getattr(node, "lineno", None)
    last = getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line and end_line <= last


@lru_cache(maxsize=512)
def _loops(text: str, line: int) -> tuple[int, ...]:
    tree = _tree(text)
    if tree is None:
        return ()
    found: list[int] = []
    for node in _path(tree, line, line):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found = []
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            body = node.body[0].lineno, node.body[-1].end_lineno or line
            if body[0] <= line <= body[1] or isinstance(node, ast.While):
                found.append(node.lineno)
    return tuple(found)


@lru_cache(maxsize=512)
def _stored_in_loop(text: str, line: int, name: str) -> bool | None:
    tree = _tree(text)
    if tree is None:
        return None
    scope: ast.AST = tree
    outermost: ast.AST | None = None
    for node in _path(tree, line, line):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            scope, outermost = node, None
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and outermost is None:
            outermost = node
    if not _stores_into(scope, name):
        return None
    return outermost is not None and _stores_into(outermost, name)


@lru_cache(maxsize=64)
def _collectors(text: str) -> tuple[tuple[int, str], ...]:
    tree = _tree(text)
    return tuple(
        (node.lineno, spell(_without_index(node.func.value)))
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _COLLECT
    )


@lru_cache(maxsize=64)
def _collected(text: str, line: int, names: tuple[str, ...]) -> tuple[int, str] | None:
    tree = _tree(text)
    scope: ast.AST | None = tree
    for node in _path(tree, line, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = node
    found: list[tuple[int, str]] = []
    for node in ast.walk(scope) if scope is not None else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _COLLECT
            and node.lineno > line
            and any(set(_reads(argument)) & set(names) for argument in node.args)
        ):
            found.append((node.lineno, spell(_without_index(node.func.value))))
    return min(found) if found else None


@lru_cache(maxsize=64)
def _rebound(text: str, line: int) -> tuple[int, tuple[str, ...]] | None:
    tree = _tree(text)
    scope: ast.AST | None = tree
    for node in _path(tree, line, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = node
    for loop in ast.walk(scope) if scope is not None else ():
        if not isinstance(loop, ast.For) or "parameters()" not in spell(loop.iter):
            continue
        targets = set(_places(loop.target))
        for statement in ast.walk(loop):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if name in targets:
                    return statement.lineno, tuple(dict.fromkeys((name, *_reads(statement.value))))
    return None


@lru_cache(maxsize=64)
def _out_of_place(text: str, line: int, end_line: int) -> str | None:
    tree = _tree(text)
    holder: ast.stmt | None = None
    for node in _path(tree, line, end_line) if tree is not None else ():
        if isinstance(node, ast.stmt):
            holder = node
    if isinstance(holder, ast.AugAssign):
        place = holder.target
        operated = spell(ast.BinOp(_loaded(place), holder.op, holder.value))
        if isinstance(place, ast.Subscript):
            whole = spell(_without_index(place))
            return f"{whole} = {whole}.clone(); {spell(place)} = {operated}"
        return f"{spell(place)} = {operated}"
    call: ast.AST | None = None
    result = ""
    if isinstance(holder, ast.Assign) and len(holder.targets) == 1:
        target = holder.targets[0]
        if isinstance(target, ast.Subscript) and _plain(target):
            whole = spell(_without_index(target))
            return f"{whole} = {whole}.clone(); {spell(holder)}"
        call, result = holder.value, spell(target)
    elif isinstance(holder, ast.Expr):
        call = holder.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    method, receiver = call.func.attr, call.func.value
    if not method.endswith("_") or method in ("zero_", "fill_", "copy_"):
        return None
    if not isinstance(receiver, (ast.Name, ast.Attribute)) or not _plain(receiver):
        return None
    arguments = spell(ast.Call(ast.Name("f", ast.Load()), call.args, call.keywords))[1:]
    return f"{result or spell(receiver)} = {spell(receiver)}.{method[:-1]}{arguments}"


def _loaded(node: ast.expr) -> ast.expr:
    """The same place, read instead of stored into."""
    return ast.parse(ast.unparse(node), mode="eval").body


@lru_cache(maxsize=512)
def _rebinds(text: str, line: int, name: str, until: int) -> bool:
    tree = _tree(text)
    loop: ast.AST | None = None
    for node in _path(tree, line, line) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            loop = None
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            loop = node
    if not isinstance(loop, (ast.For, ast.While, ast.AsyncFor)):
        return False
    if not isinstance(loop, ast.While) and name in _places(loop.target):
        return True
    for statement in _every_turn(loop.body):
        on_the_way = line < statement.lineno or statement.lineno < until
        if until > line:
            on_the_way = line < statement.lineno < until
        if statement.lineno == until or not on_the_way:
            continue
        if name in _stores(statement, None) and name not in set(_reads(_head(statement))):
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
    tree = _tree(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            value = node.value
            if isinstance(value, ast.Constant) and value.value is None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(n.rpartition(".")[2] for t in targets for n in _places(t))
    return frozenset(names)


@lru_cache(maxsize=64)
def _differentiated(text: str) -> frozenset[str]:
    names: set[str] = set()
    tree = _tree(text)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call):
            continue
        if _callee(node) == "grad":
            inputs = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "inputs")]
            names.update(n.rpartition(".")[2] for i in inputs for n in _reads(i))
        elif _callee(node) == "requires_grad_" and isinstance(node.func, ast.Attribute):
            names.add(spell(node.func.value).rpartition(".")[2])
    return frozenset(names)


def _stores_into(scope: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name
        for node in ast.walk(scope)
    )


def _path(tree: ast.AST, line: int, end_line: int) -> Iterator[ast.AST]:
    """The nodes that cover the lines, outermost first."""
    node: ast.AST | None = tree
    while node is not None:
        yield node
        following = None
        for child in ast.iter_child_nodes(node):
            if not hasattr(child, "lineno"):
                # Arguments, comprehensions and the like have no place of their own.
                inner = [c for c in ast.walk(child) if hasattr(c, "lineno")]
                if any(_covers(c, line, end_line) for c in inner):
                    following = child
                    break
            elif _covers(child, line, end_line):
                following = child
                break
        node = following


@lru_cache(maxsize=1024)
def _statement(
    text: str, line: int, column: int | None, end_line: int | None, end_column: int | None
) -> Statement | None:
    tree = _tree(text)
    if tree is None:
        return None
    last = end_line if end_line is not None else line
    holder: ast.stmt | None = None
    numbers: set[str] = set()
    for node in _path(tree, line, last):
        if isinstance(node, ast.stmt):
            holder = node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            numbers = set(_numbers(node.args))
    if holder is None:
        return None
    lines = _lines(text)
    expression = _expression(holder, lines, line, column, last, end_column)
    stores = tuple(_stores(holder, expression))
    never = _imported(text) | numbers

    def loaded(node: ast.AST) -> list[str]:
        names = dict.fromkeys(_reads(node))
        return [name for name in names if name.partition(".")[0] not in never]

    reads = tuple(loaded(expression or _head(holder)))
    target_reads: list[str] = []
    for call in ast.walk(_head(holder)):
        if isinstance(call, ast.Call) and _is_loss(call):
            for argument in _target_arguments(call):
                others = {name for a in call.args if a is not argument for name in loaded(a)}
                inside = expression is not None and any(n is expression for n in ast.walk(argument))
                if inside or expression is call or expression is None or _within(call, expression):
                    target_reads.extend(n for n in loaded(argument) if n not in others)
    return Statement(
        stores=stores,
        reads=reads,
        target_reads=tuple(dict.fromkeys(target_reads)),
        cuts=_cuts(holder, expression),
        varies=_varies(holder, expression),
        text=_one_line(lines, holder),
        gathers=_gathers(holder),
        collects=_collects(holder),
        written=_written(expression, never),
        line=holder.lineno,
        end_line=holder.end_lineno or holder.lineno,
    )


def _numbers(arguments: ast.arguments) -> Iterator[str]:
    """Parameters whose default is a number: they hold no tensor."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = arguments.defaults
    pairs = [*zip(positional[len(positional) - len(defaults) :], defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)  # type: ignore[arg-type]
    for argument, default in pairs:
        if isinstance(default, ast.Constant) and isinstance(default.value, (int, float)):
            yield argument.arg


def _within(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is outer for node in ast.walk(inner))


def _head(holder: ast.stmt) -> ast.AST:
    """The part of a compound statement that is evaluated by itself."""
    if isinstance(holder, (ast.For, ast.AsyncFor)):
        return holder.iter
    if isinstance(holder, (ast.If, ast.While)):
        return holder.test
    if isinstance(holder, (ast.With, ast.AsyncWith)):
        return ast.Tuple([item.context_expr for item in holder.items], ast.Load())
    if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
        return ast.Tuple([], ast.Load())
    return holder


def _offset(lines: list[str], line: int, column: int) -> int:
    """Code points to the UTF-8 bytes that `ast` counts."""
    if not 0 < line <= len(lines):
        return column
    return len(lines[line - 1][:column].encode())


def _expression(
    holder: ast.stmt,
    lines: list[str],
    line: int,
    column: int | None,
    end_line: int,
    end_column: int | None,
) -> ast.expr | None:
    """The smallest expression that covers the recorded columns."""
    if column is None or end_column is None:
        return None
    first = (line, _offset(lines, line, column))
    last = (end_line, _offset(lines, end_line, end_column))
    best: ast.expr | None = None
    size: tuple[int, int] | None = None
    for node in ast.walk(holder):
        if not isinstance(node, ast.expr) or node.end_lineno is None:
            continue
        begin = (node.lineno, node.col_offset)
        end = (node.end_lineno, node.end_col_offset or 0)
        if begin <= first and end >= last:
            extent = (end[0] - begin[0], end[1] - begin[1])
            if size is None or extent < size:
                best, size = node, extent
    return best


def spell(node: ast.AST) -> str:
    """The node's source, as `ast` spells it, with double quotes."""
    try:
        return ast.unparse(node).replace("'", '"')
    except Exception:
        return ""


def _stores(holder: ast.stmt, expression: ast.expr | None) -> Iterator[str]:
    if isinstance(holder, ast.Assign):
        for target in holder.targets:
            yield from _places(target)
    elif isinstance(holder, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        yield from _places(holder.target)
    elif isinstance(holder, ast.Expr) and isinstance(holder.value, ast.Call):
        function = holder.value.func
        if isinstance(function, ast.Attribute) and (
            function.attr in _COLLECT
            or (function.attr.endswith("_") and not function.attr.endswith("__"))
        ):
            yield spell(_without_index(_receiver(function.value)))
        elif (
            isinstance(function, ast.Attribute)
            and function.attr in ("register_buffer", "register_parameter")
            and holder.value.args
            and isinstance(holder.value.args[0], ast.Constant)
        ):
            yield f"{spell(function.value)}.{holder.value.args[0].value!s}"
        elif isinstance(function, ast.Name) and function.id == "setattr" and holder.value.args[1:]:
            name = holder.value.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield f"{spell(holder.value.args[0])}.{name.value}"
    for node in ast.walk(_head(holder)):
        if isinstance(node, ast.NamedExpr):
            yield node.target.id
        elif isinstance(node, ast.comprehension) and node.iter is expression:
            yield from _places(node.target)


def _receiver(node: ast.expr) -> ast.expr:
    """`x` in `x.mul_(2)`: what a chain of in-place calls writes to."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not node.func.attr.endswith("_"):
            break
        node = node.func.value
    return node


def _without_index(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _places(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _places(part)
    elif isinstance(target, ast.Starred):
        yield from _places(target.value)
    elif isinstance(target, ast.Subscript):
        yield spell(target)
        yield spell(_without_index(target))
    else:
        yield spell(target)


def _reads(node: ast.AST | None) -> Iterator[str]:
    """Names, attributes and subscripts that are loaded, callees left out."""
    if node is None:
        return
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            if function.attr in _ABOUT:
                return
            yield from _reads(function.value)
            if not node.args and _plain(function):
                yield spell(node)
        elif isinstance(function, ast.Name) and function.id in ("len", "range", "float", "int"):
            return
        elif not isinstance(function, ast.Name):
            yield from _reads(function)
        for argument in node.args:
            yield from _reads(argument)
        for keyword in node.keywords:
            yield from _reads(keyword.value)
        return
    if isinstance(node, ast.Attribute) and node.attr in _ABOUT:
        return
    if isinstance(node, (ast.Attribute, ast.Subscript)) and _plain(node):
        if isinstance(node, ast.Subscript):
            yield spell(node)
            yield from _reads(_without_index(node))
            if not isinstance(node.slice, ast.Constant):
                yield from _reads(node.slice)
        else:
            yield spell(node)
        return
    if isinstance(node, ast.Name):
        yield node.id
        return
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        yield from _reads(node.value)
        return
    if isinstance(node, ast.AugAssign):
        yield spell(node.target)
        yield from _reads(node.value)
        return
    for child in ast.iter_child_nodes(node):
        yield from _reads(child)


def _plain(node: ast.AST) -> bool:
    """Whether a chain of attributes and subscripts starts at a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name)


def _callee(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Call):
        return _callee(function)
    return ""


def _is_loss(call: ast.Call) -> bool:
    name = _callee(call).lower()
    # A divergence between two distributions has no target: both sides may be learned.
    return any(word in name for word in _LOSS_WORDS) and "divergence" not in name


def _target_arguments(call: ast.Call) -> list[ast.expr]:
    named = [k.value for k in call.keywords if k.arg in ("target", "targets", "label", "labels")]
    return named or call.args[1:2]


def _cuts(holder: ast.stmt, expression: ast.expr | None) -> bool:
    """Whether the expression takes a part of a tensor: a slice, an element, a chunk."""
    scope: ast.AST = expression if expression is not None else _head(holder)
    if isinstance(holder, (ast.For, ast.AsyncFor)) and isinstance(
        holder.iter, (ast.Name, ast.Attribute)
    ):
        return True
    if isinstance(scope, ast.Subscript):
        return _basic(scope.slice)
    if isinstance(scope, ast.Call):
        return _callee(scope) in _CUTS
    return isinstance(holder, (ast.For, ast.Assign)) and _unpacks(holder)


def _varies(holder: ast.stmt, expression: ast.expr | None) -> bool:
    """Whether which part is taken can differ from one run to the next."""
    if isinstance(expression, ast.Subscript):
        return any(isinstance(node, ast.Name) for node in ast.walk(expression.slice))
    if isinstance(expression, ast.Call) and _callee(expression) in ("narrow", "select"):
        return any(isinstance(n, ast.Name) for a in expression.args for n in ast.walk(a))
    return isinstance(holder, (ast.For, ast.AsyncFor))


def _unpacks(holder: ast.stmt) -> bool:
    return isinstance(holder, ast.Assign) and any(
        isinstance(target, (ast.Tuple, ast.List)) for target in holder.targets
    )


def _basic(index: ast.expr) -> bool:
    """Whether an index is one that makes a view: integers and slices, names taken as integers."""
    if isinstance(index, ast.Tuple):
        return all(_basic(part) for part in index.elts)
    return isinstance(
        index, (ast.Slice, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Attribute)
    )


def _written(expression: ast.expr | None, modules: Set[str]) -> str | None:
    """`x` in `x.add_(y)` and `F.relu_(x)`: what an in-place call writes to."""
    if not isinstance(expression, ast.Call) or not isinstance(expression.func, ast.Attribute):
        return None
    if not expression.func.attr.endswith("_") or expression.func.attr.endswith("__"):
        return None
    target = _receiver(expression.func.value)
    if spell(target).partition(".")[0] in modules:
        if not expression.args:
            return None
        target = expression.args[0]
    return spell(_without_index(target)) if _plain(target) else None


def _collects(holder: ast.stmt) -> bool:
    """Whether the statement puts something into a collection."""
    call = holder.value if isinstance(holder, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return call.func.attr in _COLLECT
    return isinstance(holder, ast.Assign) and isinstance(holder.targets[0], ast.Subscript)


def _gathers(holder: ast.stmt) -> bool:
    """Whether the statement sums or stacks a collection."""
    return any(
        isinstance(node, ast.Call) and _callee(node) in ("sum", "stack", "cat", "mean", "fsum")
        for node in ast.walk(_head(holder))
    )


def _one_line(lines: list[str], holder: ast.stmt) -> str:
    end = holder.end_lineno or holder.lineno
    if isinstance(holder, (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef, ast.Try)):
        end = holder.lineno
    return " ".join(line.strip() for line in lines[holder.lineno - 1 : end])
