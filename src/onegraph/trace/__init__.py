"""The centre of onegraph: what was seen, and what can be said about it, as plain values."""

from onegraph.trace.graph import Graph, State
from onegraph.trace.model import (
    Binding,
    Certainty,
    EngineCall,
    Failure,
    Finding,
    Frame,
    Overwritten,
    Process,
    Remedy,
    Report,
    Shared,
    Site,
    Source,
    Stepped,
    Trace,
    Walked,
    Write,
)

__all__ = [
    "Binding",
    "Certainty",
    "EngineCall",
    "Failure",
    "Finding",
    "Frame",
    "Graph",
    "Overwritten",
    "Process",
    "Remedy",
    "Report",
    "Shared",
    "Site",
    "Source",
    "State",
    "Stepped",
    "Trace",
    "Walked",
    "Write",
]
