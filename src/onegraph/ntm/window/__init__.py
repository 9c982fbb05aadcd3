"""A window of a Neural Turing Machine as one node of the graph, by the kernel or in plain torch."""

from onegraph.ntm.window.choice import can_be_one, is_written_out, run
from onegraph.ntm.window.function import Given
from onegraph.ntm.window.steps import Plan

__all__ = ["Given", "Plan", "can_be_one", "is_written_out", "run"]
