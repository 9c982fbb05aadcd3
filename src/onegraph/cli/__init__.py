"""The command line; the list of commands is the map of the tool."""

from __future__ import annotations

import argparse
import sys
from typing import Protocol

from onegraph._version import __version__
from onegraph.cli import explain, ntm, report, run


class Command(Protocol):
    """A module with one sub-command."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def main(self, options: argparse.Namespace) -> int:
        """Do it; return the exit status."""


COMMANDS: tuple[Command, ...] = (run, report, explain, ntm)


def main(arguments: list[str] | None = None) -> int:
    """Entry point of ``onegraph`` and ``python -m onegraph``."""
    parser = argparse.ArgumentParser(
        prog="onegraph",
        description="Explains why autograd failed: which line, which variable, which earlier call.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="with --version: what this torch shows"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        sub = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP, allow_abbrev=False
        )
        command.add_arguments(sub)
        sub.set_defaults(main=command.main, parser=sub)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Told with the usage of the command that was given.
        getattr(options, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.version:
        return _version(options.verbose)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    status = options.main(options)
    return int(status)


def _version(verbose: bool) -> int:
    print(f"onegraph {__version__}")
    if verbose:
        from onegraph.compose import abilities

        for line in abilities():
            print(line)
    return 0
