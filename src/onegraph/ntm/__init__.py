"""Memory networks: a batched Neural Turing Machine whose every forward builds one graph.

State goes in and comes out of every call and is never kept in a module, so a backward call frees
all that its forward built; `onegraph.lifetime.detach` cuts a state between windows.
"""

from onegraph.ntm.addressing import HeadParams
from onegraph.ntm.cell import NTMCell, NTMState, constant_memory, one_hot_weightings
from onegraph.ntm.controllers import (
    Controller,
    FeedForwardController,
    GRUController,
    LSTMController,
)
from onegraph.ntm.fusion import AttentionFusion, ControllerOutput, NTMController
from onegraph.ntm.hierarchy import HierarchicalNTM
from onegraph.ntm.layer import NTM

__all__ = [
    "NTM",
    "AttentionFusion",
    "Controller",
    "ControllerOutput",
    "FeedForwardController",
    "GRUController",
    "HeadParams",
    "HierarchicalNTM",
    "LSTMController",
    "NTMCell",
    "NTMController",
    "NTMState",
    "constant_memory",
    "one_hot_weightings",
]
