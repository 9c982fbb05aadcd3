"""Run a user's program as `__main__` of this process, as `python` would; then report on it."""

import builtins
import linecache
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from runpy import _Error as _NothingToRun  # type: ignore[attr-defined]
from runpy import _run_module_as_main  # type: ignore[attr-defined]
from types import CodeType, ModuleType, TracebackType
from typing import Any, Literal

Strip = Callable[[TracebackType | None], TracebackType | None]

FAULT_STATUS = 70
INTERRUPT_STATUS = 130

_ENCODING_COOKIE = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:[ \t\f]*(?:#.*)?\r?\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)"
)
# Taken before the program can replace it: this prints a traceback whatever the hook is.
_display = sys.__excepthook__


@dataclass(frozen=True, slots=True)
class Target:
    """What to run: a file, directory or zip file, a module, or code; and its arguments."""

    kind: Literal["script", "module", "code"]
    value: str
    args: tuple[str, ...]


@dataclass
class Outcome:
    """How the program ended, its exit status as a shell sees it, and the exception that left it.

    SystemExit counts as `finished`, given as the exception; `interrupted` is KeyboardInterrupt.
    """

    kind: Literal["finished", "raised", "interrupted"]
    exit_status: int
    exception: BaseException | None


class UsageError(Exception):
    """There is no such program: `message` says why in python's words, `status` is python's own."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def run(target: Target, *, strip: Strip, report: Callable[[Outcome], None]) -> int:
    """Run the program to its end, call `report` once, and return the status to give `sys.exit`.

    `report` comes after the program's traceback and before the interpreter shuts down; it finds the
    lines of `-c` code in linecache. `strip` takes our frames off a traceback.

    Raises:
        UsageError: there is nothing to run; nothing is reported.
        KeyboardInterrupt: the program was interrupted, which is printed and reported: let it
            through to the interpreter, which shuts down and then dies of SIGINT.
    """
    error, program = None, None
    try:
        program = _prepare(target)
    except UsageError:
        raise
    except BaseException as raised:
        error = raised
    main = vars(sys.modules["__main__"])
    is_file = "__file__" in main  # Python flushes, and forgets the name, after a file alone.
    if program is not None:
        error = _call(program)
    if isinstance(error, SystemExit) and isinstance(error.__context__, _NothingToRun):
        raise UsageError(str(error.__context__), 1) from None
    if is_file:
        for name in ("stderr", "stdout"):
            with suppress(Exception):
                getattr(sys, name).flush()
    outcome = _conclude(error, strip)
    if target.kind == "code":
        _show_code(target.value)
    interrupted, status = outcome.kind == "interrupted", _deliver(outcome, report)
    if target.kind == "code" and sys.version_info < (3, 13):
        linecache.cache.pop("<string>", None)
    if is_file:
        for name in ("__file__", "__cached__"):
            main.pop(name, None)
    if interrupted and error is not None:
        _interrupt(error)
    return status


def strip_frames(tb: TracebackType | None, is_ours: Callable[[str], bool]) -> TracebackType | None:
    """Return the traceback, relinked in place, without the frames whose code's file is ours."""
    kept = []
    while tb is not None:
        if not is_ours(tb.tb_frame.f_code.co_filename):
            kept.append(tb)
        tb = tb.tb_next
    for link, following in zip(kept, [*kept[1:], None], strict=False):
        if link.tb_next is not following:
            link.tb_next = following
    return kept[0] if kept else None


def _prepare(target: Target) -> Callable[[], object]:
    """Set up `__main__`, `sys.argv` and `sys.path`, and return what runs the program in them."""
    if target.kind == "module":
        _install(["-m", *target.args], os.getcwd())
        return partial(_run_module_as_main, target.value)
    if target.kind == "code":
        namespace = _install(["-c", *target.args], "")
        code: Any = compile(target.value + "\n", "<string>", "exec", dont_inherit=True)
        if sys.version_info >= (3, 13):
            _show_code(target.value)
        return partial(exec, code, namespace)
    argv = [target.value, *target.args]
    path = os.path.join(os.getcwd(), target.value)
    if pkgutil.get_importer(path) is not None:
        _install(argv, path)
        if sys.flags.safe_path:
            sys.path.insert(0, path)
        return partial(_run_module_as_main, "__main__", False)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        raise UsageError(f"can't open file {path!r}: {reason}", 2) from None
    compiled = path.endswith(".pyc")
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
    directory = os.path.dirname(os.path.realpath(path))
    namespace = _install(argv, directory, __loader__=loader, __file__=path, __cached__=None)
    code = loader.get_code("__main__") if compiled else _compile_file(content, path)
    return partial(exec, code, namespace)


def _install(argv: list[str], first_path: str, **attributes: object) -> dict[str, Any]:
    """Replace the launcher's arguments, first path and `__main__`; return the new namespace."""
    sys.argv[:] = argv
    if not sys.flags.safe_path:
        sys.path[:1] = [first_path]
    main = ModuleType("__main__")
    vars(main)["__loader__"] = BuiltinImporter
    if "__annotations__" in vars(sys.modules["__main__"]):
        vars(main)["__annotations__"] = {}
    vars(main).update(__builtins__=builtins, **attributes)
    sys.modules["__main__"] = main
    return vars(main)


def _compile_file(source: bytes, path: str) -> CodeType:
    """Compile a script, refusing what python refuses in a file and in the words it has for that."""
    # `compile` lets bytes that are no UTF-8 stand in comments, and words some errors otherwise.
    cookie = _ENCODING_COOKIE.match(source)
    try:
        if cookie is None:
            source.decode()
        return compile(source, path, "exec", dont_inherit=True)
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        failure = SyntaxError(
            f"Non-UTF-8 code starting with '\\x{source[error.start]:02x}' in file {path} on line "
            f"{line}, but no encoding declared; see https://peps.python.org/pep-0263/ for details"
        )
    except SyntaxError as error:
        failure = error
        if error.lineno == 0 and cookie is not None:
            known = error.msg.startswith("encoding problem")
            failure = SyntaxError(error.msg if known else f"encoding problem: {cookie[1].decode()}")
        elif error.msg.startswith("expected an indented block") and error.end_offset == -1:
            failure.offset = 0
    raise failure


def _show_code(code: str) -> None:
    """Let linecache show the lines of `-c` code, as python itself does from 3.13 on."""
    linecache.cache["<string>"] = (len(code), None, (code + "\n").splitlines(True), "<string>")


def _call(function: Any, *args: object) -> BaseException | None:
    """Call into the program and return what left it; a debugger it started stops stepping here."""
    sys._getframe().f_trace_lines = False
    restore: Any = partial(sys.settrace, sys.gettrace())
    try:
        _ = function(*args), restore()  # One line: the debugger would stop at the next.
    except BaseException as error:
        restore()
        return error
    return None


def _conclude(error: BaseException | None, strip: Strip) -> Outcome:
    """Do what the interpreter does with the exception that left the program."""
    if error is None:
        return Outcome("finished", 0, None)
    _strip_chain(error, strip)
    if isinstance(error, SystemExit):
        return Outcome("finished", _exit_status(error), error)
    _remember(error)
    details = (type(error), error, error.__traceback__)
    hook = vars(sys).get("excepthook", _display)
    with suppress(Exception):
        sys.audit("sys.excepthook", hook, *details)
    failure = _call(hook, *details)
    if isinstance(failure, SystemExit):
        return Outcome("raised", _exit_status(failure), error)
    if failure is not None:
        _strip_chain(failure, strip)
        _say("Error in sys.excepthook:\n")
        _display(type(failure), failure, failure.__traceback__)
        _say("\nOriginal exception was:\n")
        _display(*details)
    if type(error) is KeyboardInterrupt:  # The interpreter compares the class as well.
        return Outcome("interrupted", INTERRUPT_STATUS, error)
    return Outcome("raised", 1, error)


def _strip_chain(error: BaseException, strip: Strip) -> None:
    """Strip the tracebacks of the exception, its causes and contexts, and a group's members."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            # Not by assignment: the class may forbid that, as a frozen dataclass does.
            BaseException.with_traceback(link, strip(link.__traceback__))
            waiting += [link.__cause__, link.__context__]
            waiting += link.exceptions if isinstance(link, BaseExceptionGroup) else ()


def _remember(error: BaseException) -> None:
    """Set `sys.last_value` and its like, where a post-mortem debugger looks."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def _exit_status(stop: SystemExit) -> int:
    """Return the status that SystemExit asks for, and print its code if that is a message."""
    code: object = stop.code
    if code is None:
        return 0
    if isinstance(code, int):
        status = int(code) if -(2**63) <= code < 2**63 else -1
        return status & (0xFF if os.name == "posix" else 0xFFFFFFFF)
    with suppress(Exception):
        _say(str(code))
    _say("\n")
    return 1


def _deliver(outcome: Outcome, report: Callable[[Outcome], None]) -> int:
    """Call `report` and return the exit status, which a fault of ours changes only from 0."""
    status = outcome.exit_status
    try:
        report(outcome)
    except BaseException as fault:
        hint = " (ONEGRAPH_DEBUG=1 shows where)"
        if os.environ.get("ONEGRAPH_DEBUG") == "1":
            hint = ""
            _display(type(fault), fault, fault.__traceback__)
        reason = " ".join(f"{type(fault).__name__}: {fault}".split())
        _say(f"onegraph: the report failed: {reason}{hint}\n")
        return status or FAULT_STATUS
    return status


def _say(text: str) -> None:
    """Write to `sys.stderr`, or to the process's own stderr where that cannot be done."""
    try:
        sys.stderr.write(text)
    except Exception:
        with suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))


def _interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt past a silent hook: python is to die of SIGINT and print no more."""
    hook = vars(sys).get("excepthook", _display)

    def silent(*_: object) -> None:
        sys.excepthook = hook
        _remember(error)

    sys.excepthook = silent
    raise KeyboardInterrupt
