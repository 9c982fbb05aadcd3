"""What a call does besides making nodes, told by its function."""

from __future__ import annotations

from typing import Any

import torch

# Nothing that is looked for; writes into its first argument; writes batch norm's statistics; gives
# a value as number or array; switches gradients on or off; reads `.grad`; reads `.data`; gives
# indices, which have no history, perhaps beside values that do.
NOTHING, FIRST, STATISTICS, VALUE, SWITCH, GRADIENT, DATA, INDICES = range(8)

_OPERATORS = frozenset(
    {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__"}
    | {"__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"}
)
_EXCEPT = ("requires_grad_", "retain_grad", "share_memory_", "rename_", "detach_")


_READERS = frozenset(
    {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__complex__", "__index__"}
)
_INDICES = frozenset(
    {"max", "min", "sort", "argsort", "topk", "kthvalue", "mode", "median", "nanmedian", "cummax"}
    | {"cummin", "msort", "unique"}
)
_GRADIENT, _DATA = (vars(torch._C.TensorBase)[n].__get__ for n in ("grad", "data"))


class Effects(dict[Any, int]):
    """Maps an overridable function to one of the numbers above."""

    def __missing__(self, func: Any) -> int:
        name = getattr(func, "__name__", "")
        effect = NOTHING
        if name == "batch_norm":
            effect = STATISTICS
        elif name in _READERS:
            effect = VALUE
        elif name in _INDICES:
            effect = INDICES
        elif name == "_set_grad_enabled":
            effect = SWITCH
        elif name == "__get__":
            effect = GRADIENT if func == _GRADIENT else DATA if func == _DATA else NOTHING
        elif name in _OPERATORS or (name.endswith("_") and not name.endswith("__")):
            effect = NOTHING if name in _EXCEPT else FIRST
        self[func] = effect
        return effect
