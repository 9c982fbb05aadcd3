"""`onegraph run`: run a program as python would and explain what autograd says."""

from __future__ import annotations

import argparse
import os
import sys
from types import TracebackType

NAME = "run"
HELP = "run a program as python would, and explain a backward that fails"

LEVELS = ("error", "warning", "note")
FAILED_ON = 3

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# The programs that `onegraph explain` shows are a user's, wherever they are installed.
_PAGES = _OWN + "pages" + os.sep
_DISPATCH = os.path.join("torch", "overrides.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; everything after the program's name belongs to the program."""
    parser.usage = "onegraph run [options] (script.py | -m module | -c code) [args ...]"
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    what.add_argument("-c", dest="code", action="store_true", help="run code, as python -c")
    parser.add_argument("--json", metavar="FILE", help="write the report there; {rank} is replaced")
    parser.add_argument("--trace", metavar="FILE", help="save what was seen, for `onegraph report`")
    parser.add_argument("--no-source", action="store_true", help="show no lines of the program")
    parser.add_argument("--notes", action="store_true", help="also tell what is odd but allowed")
    parser.add_argument(
        "--fail-on",
        choices=LEVELS,
        metavar="LEVEL",
        help="exit with status 3 when a finding is an error, a warning or worse, a note or worse",
    )
    parser.add_argument("target", metavar="program", help=argparse.SUPPRESS)
    parser.add_argument("args", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def main(options: argparse.Namespace) -> int:
    """Run the program; its exit status is ours."""
    from onegraph.cli import launch
    from onegraph.cli.deliver import Wanted, deliver, undisturbed
    from onegraph.cli.program import Program

    kind = "module" if options.module else "code" if options.code else "script"
    target = launch.Target(kind, options.target, tuple(options.args))  # type: ignore[arg-type]
    spelled = {"module": ["-m"], "code": ["-c"], "script": []}[kind]
    wanted = Wanted(
        json=_absolute(options.json),
        trace=_absolute(options.trace),
        source=not options.no_source,
        notes=options.notes or options.fail_on == "note",
        command=(*spelled, options.target, *options.args),
    )
    folder = os.getcwd()
    watch = Program(
        notes=wanted.notes,
        folder=folder,
        code=options.target if kind == "code" else None,
        package=kind == "module",
        wanted=wanted,
    )

    process = os.getpid()
    found: set[str] = set()

    def tell(outcome: launch.Outcome) -> None:
        if os.getpid() != process:
            return  # a child that the program forked and that ran off its end is not the program
        error = outcome.exception
        if isinstance(error, SystemExit):
            error = error.__context__ if _explains(error.__context__) else None
        kept = outcome.exception if not isinstance(outcome.exception, SystemExit) else None
        with undisturbed():
            traces = watch.finish(error)
            report = deliver(wanted, traces, outcome.kind, outcome.exit_status, kept)
        found.update(finding.level for finding in report.findings)

    try:
        status = launch.run(target, strip=strip, report=tell)
        grave = LEVELS[: LEVELS.index(options.fail_on) + 1] if options.fail_on else ()
        return FAILED_ON if found.intersection(grave) else status
    except launch.UsageError as error:
        print(f"onegraph: {error.message}", file=sys.stderr)
        return error.status


def _explains(error: BaseException | None) -> bool:
    return error is not None and isinstance(error, RuntimeError)


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(path) if path else None


def strip(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames, and without torch's detour to us."""
    kept: list[TracebackType] = []
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if filename.startswith(_OWN) and not filename.startswith(_PAGES):
            if kept and kept[-1].tb_frame.f_code.co_filename.endswith(_DISPATCH):
                # A Python function of torch asked us first: it is on the stack twice.
                del kept[-2:]
        else:
            kept.append(traceback)
        traceback = traceback.tb_next
    for link, following in zip(kept, [*kept[1:], None], strict=False):
        if link.tb_next is not following:
            link.tb_next = following
    return kept[0] if kept else None
