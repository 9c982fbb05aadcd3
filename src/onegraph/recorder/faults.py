"""How onegraph speaks of a fault of its own: one line, never an exception in the program."""

from __future__ import annotations

import os
import sys
import traceback


def tell_fault(fault: Exception) -> None:
    """Print what went wrong to stderr, with a traceback under ``ONEGRAPH_DEBUG``."""
    if os.environ.get("ONEGRAPH_DEBUG"):
        traceback.print_exception(fault)
    else:
        print(
            f"onegraph: could not read the graph ({type(fault).__name__}: {fault}); "
            "set ONEGRAPH_DEBUG=1 for the details",
            file=sys.stderr,
        )
