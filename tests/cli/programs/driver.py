"""Runs `driver.py script|-m module|-c code args...` through onegraph.cli.launch, and no more.

DRIVER_REPORT names a file that takes one line for each call of `report`; DRIVER_FAULT is an
expression that `report` evaluates, to fail on purpose.
"""

import os
import sys

SRC = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "src")

sys.path.insert(0, SRC)
from onegraph.cli import launch  # noqa: E402

sys.path.remove(SRC)

OURS = (os.path.abspath(__file__), launch.__file__)


def report(outcome):
    if path := os.environ.get("DRIVER_REPORT"):
        with open(path, "a") as file:
            name = type(outcome.exception).__name__
            print(outcome.kind, outcome.exit_status, name, file=file)
    eval(os.environ.get("DRIVER_FAULT", "None"))


def main():
    first, *rest = sys.argv[1:]
    kind = {"-m": "module", "-c": "code"}.get(first, "script")
    value = first if kind == "script" else rest.pop(0)
    target = launch.Target(kind, value, tuple(rest))
    try:
        return launch.run(
            target,
            strip=lambda traceback: launch.strip_frames(traceback, OURS.__contains__),
            report=report,
        )
    except launch.UsageError as error:
        print(f"{sys.executable}: {error.message}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
