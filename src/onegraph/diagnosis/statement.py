"""One statement of the user's source, read: what it stores, reads and cuts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache

COLLECT = {"append", "appendleft", "add", "extend", "insert", "push", "put", "setdefault"}
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


@lru_cache(maxsize=64)
def parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)
def lines_of(text: str) -> list[str]:
    return text.splitlines()


@lru_cache(maxsize=64)
def _imported(text: str) -> frozenset[str]:
    """Names that imports bind: `F` in `F.relu(x)` is not a tensor."""
    tree = parsed(text)
    names: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((a.asname or a.name).partition(".")[0] for a in node.names)
    return frozenset(names)


def _covers(node: ast.AST, line: int, end_line: int) -> bool:
    first = getattr(node, "lineno", None)
    last = getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line and end_line <= last


def path_to(tree: ast.AST, line: int, end_line: int) -> Iterator[ast.AST]:
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
def statement_at(
    text: str, line: int, column: int | None, end_line: int | None, end_column: int | None
) -> Statement | None:
    tree = parsed(text)
    if tree is None:
        return None
    last = end_line if end_line is not None else line
    holder: ast.stmt | None = None
    numbers: set[str] = set()
    for node in path_to(tree, line, last):
        if isinstance(node, ast.stmt):
            holder = node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            numbers = set(_numbers(node.args))
    if holder is None:
        return None
    lines = lines_of(text)
    expression = _expression(holder, lines, line, column, last, end_column)
    stores = tuple(stores_of(holder, expression))
    never = _imported(text) | numbers

    def loaded(node: ast.AST) -> list[str]:
        names = dict.fromkeys(reads_of(node))
        return [name for name in names if name.partition(".")[0] not in never]

    reads = tuple(loaded(expression or head_of(holder)))
    target_reads: list[str] = []
    for call in ast.walk(head_of(holder)):
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


def head_of(holder: ast.stmt) -> ast.AST:
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


def stores_of(holder: ast.stmt, expression: ast.expr | None) -> Iterator[str]:
    if isinstance(holder, ast.Assign):
        for target in holder.targets:
            yield from places_of(target)
    elif isinstance(holder, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        yield from places_of(holder.target)
    elif isinstance(holder, ast.Expr) and isinstance(holder.value, ast.Call):
        function = holder.value.func
        if isinstance(function, ast.Attribute) and (
            function.attr in COLLECT
            or (function.attr.endswith("_") and not function.attr.endswith("__"))
        ):
            yield spell(without_index(_receiver(function.value)))
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
    for node in ast.walk(head_of(holder)):
        if isinstance(node, ast.NamedExpr):
            yield node.target.id
        elif isinstance(node, ast.comprehension) and node.iter is expression:
            yield from places_of(node.target)


def _receiver(node: ast.expr) -> ast.expr:
    """`x` in `x.mul_(2)`: what a chain of in-place calls writes to."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not node.func.attr.endswith("_"):
            break
        node = node.func.value
    return node


def without_index(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def places_of(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from places_of(part)
    elif isinstance(target, ast.Starred):
        yield from places_of(target.value)
    elif isinstance(target, ast.Subscript):
        yield spell(target)
        yield spell(without_index(target))
    else:
        yield spell(target)


def reads_of(node: ast.AST | None) -> Iterator[str]:
    """Names, attributes and subscripts that are loaded, callees left out."""
    if node is None:
        return
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            if function.attr in _ABOUT:
                return
            yield from reads_of(function.value)
            if not node.args and is_plain(function):
                yield spell(node)
        elif isinstance(function, ast.Name) and function.id in ("len", "range", "float", "int"):
            return
        elif not isinstance(function, ast.Name):
            yield from reads_of(function)
        for argument in node.args:
            yield from reads_of(argument)
        for keyword in node.keywords:
            yield from reads_of(keyword.value)
        return
    if isinstance(node, ast.Attribute) and node.attr in _ABOUT:
        return
    if isinstance(node, (ast.Attribute, ast.Subscript)) and is_plain(node):
        if isinstance(node, ast.Subscript):
            yield spell(node)
            yield from reads_of(without_index(node))
            if not isinstance(node.slice, ast.Constant):
                yield from reads_of(node.slice)
        else:
            yield spell(node)
        return
    if isinstance(node, ast.Name):
        yield node.id
        return
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        yield from reads_of(node.value)
        return
    if isinstance(node, ast.AugAssign):
        yield spell(node.target)
        yield from reads_of(node.value)
        return
    for child in ast.iter_child_nodes(node):
        yield from reads_of(child)


def is_plain(node: ast.AST) -> bool:
    """Whether a chain of attributes and subscripts starts at a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name)


def callee_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Call):
        return callee_of(function)
    return ""


def _is_loss(call: ast.Call) -> bool:
    name = callee_of(call).lower()
    # A divergence between two distributions has no target: both sides may be learned.
    return any(word in name for word in _LOSS_WORDS) and "divergence" not in name


def _target_arguments(call: ast.Call) -> list[ast.expr]:
    named = [k.value for k in call.keywords if k.arg in ("target", "targets", "label", "labels")]
    return named or call.args[1:2]


def _cuts(holder: ast.stmt, expression: ast.expr | None) -> bool:
    """Whether the expression takes a part of a tensor: a slice, an element, a chunk."""
    scope: ast.AST = expression if expression is not None else head_of(holder)
    if isinstance(holder, (ast.For, ast.AsyncFor)) and isinstance(
        holder.iter, (ast.Name, ast.Attribute)
    ):
        return True
    if isinstance(scope, ast.Subscript):
        return _basic(scope.slice)
    if isinstance(scope, ast.Call):
        return callee_of(scope) in _CUTS
    return isinstance(holder, (ast.For, ast.Assign)) and _unpacks(holder)


def _varies(holder: ast.stmt, expression: ast.expr | None) -> bool:
    """Whether which part is taken can differ from one run to the next."""
    if isinstance(expression, ast.Subscript):
        return any(isinstance(node, ast.Name) for node in ast.walk(expression.slice))
    if isinstance(expression, ast.Call) and callee_of(expression) in ("narrow", "select"):
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
    return spell(without_index(target)) if is_plain(target) else None


def _collects(holder: ast.stmt) -> bool:
    """Whether the statement puts something into a collection."""
    call = holder.value if isinstance(holder, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return call.func.attr in COLLECT
    return isinstance(holder, ast.Assign) and isinstance(holder.targets[0], ast.Subscript)


def _gathers(holder: ast.stmt) -> bool:
    """Whether the statement sums or stacks a collection."""
    return any(
        isinstance(node, ast.Call) and callee_of(node) in ("sum", "stack", "cat", "mean", "fsum")
        for node in ast.walk(head_of(holder))
    )


def _one_line(lines: list[str], holder: ast.stmt) -> str:
    end = holder.end_lineno or holder.lineno
    if isinstance(holder, (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef, ast.Try)):
        end = holder.lineno
    return " ".join(line.strip() for line in lines[holder.lineno - 1 : end])
