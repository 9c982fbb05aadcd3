"""Finds the names under which a user's program holds its tensors.

Starts at the live frames and the globals of user modules, and looks into what they hold. Nothing
of the user's is run: attributes are read from ``__dict__`` and slots, never through properties.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from types import (
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import torch

from onegraph.recorder.sites import UserFiles

OBJECTS = 300_000
DEPTH = 7
ITEMS = 512
_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), range, slice)


class Found(NamedTuple):
    """A tensor or graph node and the name that leads to it."""

    name: str
    value: Any
    depth: int | None
    steps: int
    holder: str


class Names:
    """Everything with a name in this process that matters to a graph."""

    def __init__(self, frames: list[FrameType], users: UserFiles) -> None:
        self.tensors: list[Found] = []
        self.nodes: list[Found] = []
        self.modules: list[tuple[str, torch.nn.Module]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []
        self._queue: deque[tuple[Any, str, int | None, int, str]] = deque()
        self._node_type: type = getattr(torch._C._functions, "AccumulateGrad", type(None))
        for name, value, depth in self._starts(frames, users):
            self._visit(value, name, depth, 0, "local" if depth is not None else "global")
        while self._queue and len(self._seen) < OBJECTS:
            value, name, depth, steps, holder = self._queue.popleft()
            if steps < DEPTH:
                self._look_into(value, name, depth, steps, holder)
        self._cached_parametrizations()

    def _cached_parametrizations(self) -> None:
        """`parametrize.cached()` keeps tensors in a table of torch's own, by module and name."""
        parametrize = sys.modules.get("torch.nn.utils.parametrize")
        cache = getattr(parametrize, "_cache", None)
        if not isinstance(cache, dict):
            return
        owners = {id(module): name for name, module in self.modules}
        for key, value in list(cache.items()):
            if isinstance(key, tuple) and len(key) == 2 and isinstance(value, torch.Tensor):
                owner = owners.get(key[0])
                name = f"{owner}.{key[1]}" if owner else str(key[1])
                self.tensors.append(Found(name, value, None, 2, "cache"))

    def _starts(
        self, frames: list[FrameType], users: UserFiles
    ) -> Iterator[tuple[str, Any, int | None]]:
        for depth, frame in enumerate(frames):
            module_level = frame.f_code.co_name == "<module>"
            for name, value in list(frame.f_locals.items()):
                if not (module_level and name.startswith("__")):
                    yield name, value, depth
        for module in list(sys.modules.values()):
            scope = plain_dict(module)
            file = scope.get("__file__")
            if module is sys.modules.get("__main__") or (isinstance(file, str) and users[file]):
                for name, value in list(scope.items()):
                    if not name.startswith("__") and not isinstance(value, ModuleType):
                        yield name, value, None

    def _visit(self, value: Any, name: str, depth: int | None, steps: int, holder: str) -> None:
        kind = type(value)
        if kind in _LEAVES:
            return
        if isinstance(value, torch.Tensor):
            # A tensor is noted under each name: an alias may be what the user knows it by.
            self.tensors.append(Found(name, value, depth, steps, holder))
            gradient = None if id(value) in self._seen else _grad(value)
            self._seen.add(id(value))
            if gradient is not None and gradient.grad_fn is not None:
                self.tensors.append(Found(f"{name}.grad", gradient, depth, steps + 1, "attribute"))
            return
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if hasattr(kind, "next_functions") and hasattr(kind, "_sequence_nr"):
            self.nodes.append(Found(name, value, depth, steps, holder))
            return
        if isinstance(value, ModuleType):
            return
        if isinstance(value, torch.nn.Module):
            self.modules.append((name, value))
        elif isinstance(value, torch.optim.Optimizer):
            self.optimizers.append(value)
        self._queue.append((value, name, depth, steps, holder))

    def _look_into(self, value: Any, name: str, depth: int | None, steps: int, holder: str) -> None:
        for label, part, kind in _parts(value, name):
            self._kept.append(part)
            # The module of a bound name is a name of its own, not one step further away.
            self._visit(part, label, depth, steps + 1, kind or holder)


def _grad(tensor: torch.Tensor) -> torch.Tensor | None:
    if not tensor.is_leaf:
        return None
    try:
        return tensor.grad
    except Exception:
        return None


def _parts(value: Any, name: str) -> Iterator[tuple[str, Any, str | None]]:
    """(name, part, how it is held) of what an object holds."""
    if isinstance(value, Mapping):
        kept = "dict" if _rebuildable(value) else "item"
        for count, (key, part) in enumerate(list(value.items())):
            if count >= ITEMS:
                break
            if isinstance(key, str):
                yield f'{name}["{key}"]', part, kept
            elif isinstance(key, int):
                yield f"{name}[{key}]", part, kept
            else:
                yield f"{name}[...]", part, "item"
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for field in value._fields:
            yield f"{name}.{field}", getattr(value, field), "field"
    elif isinstance(value, (list, tuple, deque)):
        kind = _sequence_kind(value)
        for position, part in enumerate(list(value)[:ITEMS]):
            yield f"{name}[{position}]", part, kind
        if len(value) > ITEMS:
            yield f"{name}[{len(value) - 1}]", value[-1], "item"
    elif isinstance(value, (set, frozenset)):
        for count, part in enumerate(list(value)):
            if count >= ITEMS:
                break
            yield f"{name}[...]", part, "item"
    elif isinstance(value, FunctionType):
        yield from _of_function(value, name)
        return
    elif isinstance(value, MethodType):
        yield name.rpartition(".")[0] or name, value.__self__, None
        return
    elif isinstance(value, GeneratorType):
        if value.gi_frame is not None:
            for local, part in list(value.gi_frame.f_locals.items()):
                yield local, part, "generator"
        return
    elif isinstance(value, CellType):
        try:
            yield name, value.cell_contents, None
        except ValueError:
            return
    elif type(value).__name__ == "_lru_cache_wrapper":
        # The cache itself has no name; what it holds is known by the function's.
        for part in gc.get_referents(value):
            if isinstance(part, dict) and part is not getattr(value, "__dict__", None):
                for cached in list(part.values())[:ITEMS]:
                    bounded = type(cached).__name__ == "_lru_list_elem"
                    for result in gc.get_referents(cached) if bounded else [cached]:
                        yield f"{name}()", result, "cache"
        return
    if isinstance(value, torch.nn.Module):
        yield from _of_module(value, name)
        return
    attributes = plain_dict(value)
    if attributes and not isinstance(value, type):
        frozen = getattr(getattr(type(value), "__dataclass_params__", None), "frozen", False)
        for key, part in list(attributes.items())[: 4 * ITEMS]:
            if isinstance(key, str):
                yield f"{name}.{key}", part, "frozen" if frozen else "attribute"
        yield from _of_class(type(value), name)
    elif isinstance(value, type):
        yield from _of_class(value, name)
    for slot in _slots(type(value)):
        try:
            yield f"{name}.{slot}", object.__getattribute__(value, slot), "attribute"
        except AttributeError:
            continue


def _rebuildable(value: Mapping[Any, Any]) -> bool:
    return type(value) is dict and all(isinstance(part, torch.Tensor) for part in value.values())


def _sequence_kind(value: Any) -> str:
    """How a sequence holds its elements: whether it holds tensors alone, and can be written to."""
    tensors = all(isinstance(part, torch.Tensor) for part in value)
    if type(value) is tuple:
        return "tuple" if tensors else "mixed"
    return "list" if type(value) is list and tensors else "item"


def plain_dict(value: Any) -> dict[Any, Any]:
    """An object's own attributes, without running what its class may do when asked for them."""
    for base in type.mro(type(value)) if not isinstance(value, type) else ():
        slot = type.__getattribute__(base, "__dict__").get("__dict__")
        if slot is not None:
            if not isinstance(slot, (GetSetDescriptorType, MemberDescriptorType)):
                return {}
            attributes = slot.__get__(value)
            return attributes if isinstance(attributes, dict) else {}
    return {}


def _of_function(value: FunctionType, name: str) -> Iterator[tuple[str, Any, str | None]]:
    for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        try:
            yield variable, cell.cell_contents, "closure"
        except ValueError:
            continue
    for default in value.__defaults__ or ():
        position = (value.__defaults__ or ()).index(default) if _plain(default) else 0
        names = value.__code__.co_varnames[: value.__code__.co_argcount]
        offset = len(names) - len(value.__defaults__ or ())
        yield names[offset + position] if names else name, default, "default"
    for key, default in (value.__kwdefaults__ or {}).items():
        yield key, default, "default"
    for key, part in vars(value).items():
        yield f"{name}.{key}", part, "attribute"


def _plain(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) and "__eq__" not in vars(type(value))


def _of_module(value: torch.nn.Module, name: str) -> Iterator[tuple[str, Any, str | None]]:
    for store in ("_parameters", "_buffers", "_modules"):
        for key, part in list(value.__dict__.get(store, {}).items()):
            if part is not None:
                yield (f"{name}[{key}]" if key.isdigit() else f"{name}.{key}"), part, "attribute"
    for key, part in list(value.__dict__.items()):
        if key not in ("_parameters", "_buffers", "_modules"):
            yield f"{name}.{key}", part, "attribute"
    yield from _of_class(type(value), name)


def _of_class(kind: type, name: str) -> Iterator[tuple[str, Any, str | None]]:
    for base in kind.__mro__:
        module = sys.modules.get(base.__module__)
        if base.__module__.partition(".")[0] in ("builtins", "torch", "typing", "abc", "enum"):
            continue
        if module is None:
            continue
        for key, part in list(vars(base).items()):
            kept = isinstance(part, (torch.Tensor, list, dict, deque))
            if (kept or type(part).__name__ == "_lru_cache_wrapper") and not key.startswith("__"):
                yield f"{name}.{key}", part, "attribute"


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if isinstance(slot, str) and slot not in ("__dict__", "__weakref__"):
                yield slot


def parameter_names(names: Names) -> dict[int, str]:
    """id of each parameter -> its name, as its module's ``named_parameters`` spells it.

    The variable that holds the module leads where the bare name says little or is not unique.
    """
    roots: list[tuple[str, torch.nn.Module]] = []
    inner: set[int] = set()
    for name, module in names.modules:
        if id(module) not in inner:
            roots.append((name, module))
            inner.update(id(m) for m in module.modules())
    # A module found first may later turn up inside another: only the outermost names its parts.
    roots = [
        (name, module)
        for name, module in roots
        if not any(module is not other and _inside(module, other) for _, other in roots)
    ]
    result: dict[int, str] = {}
    lone = len({id(m) for _, m in roots if next(m.parameters(), None) is not None}) == 1
    for name, module in roots:
        for path, parameter in module.named_parameters():
            clear = lone and "." in path and not path[0].isdigit()
            result.setdefault(id(parameter), path if clear else f"{name}.{path}")
    for found in names.tensors:
        if found.value.is_leaf and found.value.requires_grad:
            result.setdefault(id(found.value), found.name)
    return result


def _inside(module: torch.nn.Module, other: torch.nn.Module) -> bool:
    return any(module is part for part in other.modules())
