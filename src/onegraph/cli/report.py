"""`onegraph report`: draw a saved trace again, without torch."""

from __future__ import annotations

import argparse
import sys

NAME = "report"
HELP = "draw a saved trace again"
LONGEST = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("trace", metavar="trace.json", help="what `onegraph run --trace` wrote")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--no-source", action="store_true", help="show no lines of the program")
    parser.add_argument("--notes", action="store_true", help="also tell what is odd but allowed")


def main(options: argparse.Namespace) -> int:
    """Print the report of a saved trace to stdout."""
    from onegraph.compose import compose
    from onegraph.trace import Process, codec

    try:
        with open(options.trace, encoding="utf-8") as stream:
            # With a bound, what is no text is found out at once, endless or not.
            text = stream.read(LONGEST)
        traces, document = codec.traces_from_json(text)
    except OSError as error:
        print(f"onegraph: cannot read {options.trace}: {error.strerror}", file=sys.stderr)
        return 2
    except (UnicodeDecodeError, codec.DecodeError) as error:
        print(f"onegraph: {options.trace}: {error}", file=sys.stderr)
        return 2
    try:
        report = compose(
            traces,
            document["outcome"],
            document["exit_status"],
            document.get("exception"),
            command=tuple(document.get("command", ())),
            process=Process(document["process"]["pid"], document["process"].get("rank")),
            notes=options.notes,
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"damaged trace: {type(error).__name__}: {error}"
        print(f"onegraph: {options.trace}: {reason}", file=sys.stderr)
        return 2
    if options.json:
        sys.stdout.write(codec.report_to_json(report))
        return 0
    from onegraph.render.terminal import render

    if not report.findings:
        print("no findings")
        return 0
    sys.stdout.write(render(report, sys.stdout, source=not options.no_source))
    return 0
