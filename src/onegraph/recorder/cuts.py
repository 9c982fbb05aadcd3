"""Where history ends: calls that took a tensor with history and gave one without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import KeyedRef

import torch

from onegraph.recorder.writes import has_history

# A line's first runs are looked into: which leaves lie behind what it cut off.
RUNS_READ = 2
NODES_READ = 3_000
# So many tensors at most are known to stem from a cut; more, and none are followed any further.
FOLLOWED = 50_000
CUTS_KEPT = 4_096
# Stands for the line of a library that switches gradients off for itself.
LIBRARY_SCOPE = -1
ORIGINS = 8

_DETACH = {"detach", "detach_"}
_VALUES = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "tensor", "as_tensor",
           "new_tensor", "__get__", "__iter__", "from_numpy", "to_numpy"}  # fmt: skip
_TO_ARRAYS = {"numpy", "__array__", "tolist"}
_FROM_ARRAYS = {"tensor", "as_tensor", "from_numpy", "asarray"}
_COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal",
                "less_equal", "not_equal", "isclose", "logical_and", "logical_or", "logical_not",
                "logical_xor", "__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__", "isnan",
                "isinf", "isfinite", "bool", "__and__", "__or__", "__invert__"}  # fmt: skip


class Cut:
    """One expression that cuts history off, over all its runs.

    Args:
        site: the expression.
        func: the function that cut.
        off: the expression that had switched gradients off, where that was the reason.
    """

    __slots__ = ("epoch", "func", "joined", "leaves", "off", "runs", "site")

    def __init__(self, site: int, func: str, off: int) -> None:
        self.site = site
        self.func = func
        self.off = off
        self.runs = 0
        self.epoch = 0
        # ids of the leaf tensors behind what was cut off, in the first runs.
        self.leaves: set[int] = set()
        # Whether what came out went into a graph all the same.
        self.joined = False

    @property
    def cause(self) -> str:
        """The cause of the contract that this is."""
        if self.off:
            return "no-grad-scope"
        if self.func in _DETACH:
            return "detach-cut"
        if self.func in _VALUES:
            return "data-or-numpy-cut"
        if self.func in _COMPARISONS:
            return "comparison-cut"
        return "non-differentiable-op"


class Cuts:
    """All cuts of a recording, and the living tensors that stem from one."""

    def __init__(self) -> None:
        # In the order in which they were first seen.
        self.known: dict[tuple[int, str], Cut] = {}
        self.stemming: dict[int, tuple[Any, tuple[Cut, ...]]] = {}
        self._full = False
        # The expression that switched gradients off, 0 while they are on.
        self._off = 0
        # The last cut that became an array, and when.
        self._arrays: tuple[Cut, int] | None = None

    def switch(self, on: bool, site_of: Callable[[], int]) -> None:
        """Note that gradients were switched on or off."""
        if on:
            self._off = 0
        elif not self._off:
            self._off = site_of()

    def look(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        result: Any,
        site_of: Callable[[], int],
        epoch: int,
    ) -> None:
        """See whether a call that made no node cut history off, or passed on what was cut off."""
        sources = [a for a in _tensors(args, kwargs) if has_history(a)]
        if sources:
            off = not torch.is_grad_enabled()
            if off and self._off == LIBRARY_SCOPE:
                return  # a checkpoint's first pass, or an optimizer's step
            name = getattr(func, "__name__", "?")
            site = site_of()
            cut = self.known.get((site, name))
            if cut is None:
                if len(self.known) >= CUTS_KEPT:
                    return
                cut = Cut(site, name, (self._off or site) if off else 0)
                self.known[site, name] = cut
            cut.runs += 1
            cut.epoch = epoch
            if cut.runs <= RUNS_READ:
                for source in sources:
                    cut.leaves |= _leaves(source)
            if isinstance(result, torch.Tensor):
                self._follow(result, (cut,))
        elif isinstance(result, torch.Tensor) and self._arrays and self._arrays[1] == epoch:
            # Where an array goes cannot be seen; what is made of one just after may come from it.
            if getattr(func, "__name__", "") in _FROM_ARRAYS:
                self._follow(result, (self._arrays[0],))
        elif self.stemming and isinstance(result, torch.Tensor):
            origins = self.origins(_tensors(args, kwargs))
            if origins:
                self._follow(result, origins)

    def to_array(self, tensor: torch.Tensor, func: Any, epoch: int) -> None:
        """Note that what stems from a cut became a number or an array: that is how it was cut."""
        origin = next(iter(self.origins([tensor])), None)
        if origin is not None and not origin.joined:
            name = getattr(func, "__name__", "")
            if origin.func in _DETACH and name in _TO_ARRAYS:
                origin.func = name
            self._arrays = origin, epoch

    def join(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
        """See whether what was cut off went into a call that made nodes."""
        for cut in self.origins(_tensors(args, kwargs)):
            cut.joined = True

    def origins(self, tensors: Iterable[Any]) -> tuple[Cut, ...]:
        """The cuts that the tensors stem from, a few at most."""
        cuts: dict[Cut, None] = {}
        for tensor in tensors:
            found = self.stemming.get(id(tensor))
            if found is not None and found[0]() is tensor:
                cuts.update(dict.fromkeys(found[1]))
        return tuple(cuts)[:ORIGINS]

    def _follow(self, tensor: torch.Tensor, cuts: tuple[Cut, ...]) -> None:
        if self._full:
            return
        if len(self.stemming) >= FOLLOWED:
            self._full = True
            self.stemming.clear()
            return
        key = id(tensor)
        self.stemming[key] = KeyedRef(tensor, self._forget, key), cuts

    def _forget(self, reference: Any) -> None:
        found = self.stemming.get(reference.key)
        if found is not None and found[0] is reference:
            del self.stemming[reference.key]


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[torch.Tensor]:
    found = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [part for part in value if isinstance(part, torch.Tensor)]
    return found


def _leaves(source: torch.Tensor) -> set[int]:
    """ids of the leaves behind a tensor, as far as a short walk finds them."""
    if source.grad_fn is None:
        return {id(source)}
    found: set[int] = set()
    seen: set[Any] = {source.grad_fn}
    stack: list[Any] = [source.grad_fn]
    while stack:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            found.add(id(variable))
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                if len(seen) >= NODES_READ:
                    return found
                seen.add(other)
                stack.append(other)
    return found
