"""Detaching any nest of tensors, and saying which one was not."""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from onegraph.lifetime import HistoryError, assert_detached, detach


def with_history() -> torch.Tensor:
    """A tensor that a graph stands behind."""
    return torch.ones(2, requires_grad=True) * 2


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """A dataclass that cannot be assigned to and has a field made after the others."""

    memory: Any
    step: int = 0
    twice: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.step)


class Ordered(collections.OrderedDict):
    """A subclass of a mapping."""


class Own:
    """An object that knows how to detach itself."""

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def detach(self) -> Own:
        return Own(self.inner.detach())


class Kind(enum.Enum):
    """Something without history."""

    ONE = 1


leaves = st.builds(with_history) | st.sampled_from([None, 1, 2.5, "text", Kind.ONE, torch.ones(1)])
nests = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Frozen, inner, st.integers(0, 5))
        | st.lists(inner, max_size=3).map(collections.deque)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=2).map(Ordered)
    ),
    max_leaves=8,
)


def flat(tree: Any) -> list[Any]:
    """The leaves of a nest of the kinds above, and the types on the way to them."""
    if isinstance(tree, dict):
        return [type(tree), *(x for key in tree for x in (key, *flat(tree[key])))]
    if isinstance(tree, (list, tuple, collections.deque)):
        return [type(tree), *(x for part in tree for x in flat(part))]
    if isinstance(tree, Frozen):
        return [Frozen, *flat(tree.memory), tree.step, tree.twice]
    return [tree]


@settings(deadline=None)
@given(nests)
def test_detach_keeps_all_but_history(tree: Any) -> None:
    """The nest has the same types and values, and no tensor of it has a history."""
    cut = detach(tree)
    assert_detached(cut)
    before, after = flat(tree), flat(cut)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other)
            assert one.data_ptr() == other.data_ptr()
            assert not other.requires_grad
        else:
            assert one == other


@settings(deadline=None)
@given(nests)
def test_assert_detached_finds_any_history(tree: Any) -> None:
    """It raises exactly when some tensor has a history."""
    if any(isinstance(x, torch.Tensor) and x.grad_fn is not None for x in flat(tree)):
        with pytest.raises(HistoryError):
            assert_detached(tree)
    else:
        assert_detached(tree)


def test_assert_detached_says_which() -> None:
    """The message names the place and the node that made the tensor."""
    state = {"reads": [torch.ones(1), Pair(torch.ones(1), with_history())]}
    with pytest.raises(
        HistoryError,
        match=re.escape(
            "state['reads'][1].right still has its history: it was made by MulBackward0"
        ),
    ):
        assert_detached(state, "state")


def test_leaves_have_no_history() -> None:
    """A parameter passes, since no graph stands behind it."""
    assert_detached(torch.nn.Linear(2, 2).weight)


def test_one_tensor_stays_one() -> None:
    """A tensor in two places is one tensor afterwards."""
    x = with_history()
    a, (b,) = detach((x, [x]))
    assert a is b


def test_objects_that_detach_themselves() -> None:
    """An object's own detach() is used, and what it holds is looked at."""
    own = Own(with_history())
    with pytest.raises(HistoryError, match=re.escape("tree[0].inner")):
        assert_detached([own])
    assert_detached(detach([own]))


def test_what_cannot_be_detached_is_named() -> None:
    """Anything else is an error that says where it stands and what it is."""
    with pytest.raises(
        TypeError,
        match=re.escape("cannot detach tree['cell'][1]: a torch.nn.modules.linear.Linear"),
    ):
        detach({"cell": (1, torch.nn.Linear(1, 1))})
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(TypeError, match=re.escape("tree[0]: it contains itself")):
        detach(knot)


def test_torch_and_python_containers() -> None:
    """torch's tuples, packed sequences, default dicts and read-only mappings keep their type."""
    x = torch.ones(3, 2, requires_grad=True) * 2
    packed = pack_padded_sequence(x, torch.tensor([2, 1]))
    assert isinstance(detach(packed), PackedSequence)
    assert_detached(detach(packed))
    top = detach(x.max(dim=0))
    assert type(top) is type(x.max(dim=0))
    assert not top.values.requires_grad
    by_name = collections.defaultdict(list, a=[x])
    assert detach(by_name).default_factory is list
    assert_detached(detach(MappingProxyType({"a": x})["a"]))


def test_parameters_are_cut_too() -> None:
    """A learned initial state is a leaf afterwards that takes no gradient."""
    assert not detach(torch.nn.Parameter(torch.ones(2))).requires_grad
