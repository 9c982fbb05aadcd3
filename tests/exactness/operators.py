"""torch's own operator database, each sample between two lines that make nodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from onegraph import api
from tests.exactness.judge import Tally, compare, roots_of


@dataclass
class Survey:
    """What came of running samples of many operators."""

    ops: int = 0
    samples: int = 0
    forward: Tally = field(default_factory=Tally)
    backward: Tally = field(default_factory=Tally)
    different: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.ops} operators, {self.samples} samples; nodes of the forward pass: "
            f"{self.forward}; of derivatives: {self.backward}; without samples here: "
            f"{len(self.skipped)}"
        )


def differentiable() -> list[Any]:
    """Every operator of the database that has a derivative for float64 on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if torch.float64 in op.supported_backward_dtypes("cpu")]


def survey(ops: list[Any], samples: int) -> Survey:
    """Run so many samples of each operator, and judge every node that they make."""
    result = Survey()
    for op in ops:
        count = 0
        for count, sample in enumerate(_samples(op, samples), start=1):
            _try(op, sample, result)
        result.samples += count
        if count:
            result.ops += 1
        else:
            result.skipped.append(op.full_name)
    return result


def _samples(op: Any, most: int) -> Iterator[Any]:
    torch.manual_seed(0)
    return islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), most)


def _try(op: Any, sample: Any, result: Survey) -> None:
    name = f"{op.full_name} {sample.summary()}"
    plain = _gradients(op, sample)
    session = api.begin(lines=True)
    try:
        watched = _gradients(op, sample)
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            made = _between(op, sample)
            result.forward += compare(session.recorder, roots_of(made))
            twice = _derivatives(made[1], sample)
            result.backward += compare(session.recorder, roots_of(twice))
    finally:
        api.end(session)
    if not _identical(plain, watched):
        result.different.append(name)


def _between(op: Any, sample: Any) -> tuple[Any, Any, Any]:
    decoy = torch.ones(2, requires_grad=True)
    torch.manual_seed(0)
    before = decoy * 2
    made = op(sample.input, *sample.args, **sample.kwargs)
    after = decoy * 3
    return before, made, after


def _gradients(op: Any, sample: Any) -> list[Any]:
    """What the operator returns, and its gradients."""
    _, made, _ = _between(op, sample)
    made = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
    outputs, inputs = _ends(made, sample)
    if not outputs or not inputs:
        return made
    ones = [torch.ones_like(t) for t in outputs]
    return made + list(torch.autograd.grad(outputs, inputs, ones, allow_unused=True))


def _derivatives(made: Any, sample: Any) -> list[Any]:
    """Gradients with a graph of their own, for an operator that has second derivatives."""
    outputs, inputs = _ends(tree_leaves(made), sample)
    if not outputs or not inputs:
        return []
    ones = [torch.ones_like(t).requires_grad_() for t in outputs]
    try:
        return list(
            torch.autograd.grad(outputs, inputs, ones, allow_unused=True, create_graph=True)
        )
    except (RuntimeError, NotImplementedError):
        return []


def _ends(made: list[Any], sample: Any) -> tuple[list[Any], list[Any]]:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    inputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    outputs = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    return outputs, inputs


def _identical(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(_same_bits, left, right))


def _same_bits(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if left.layout != torch.strided:
        left, right = left.to_dense(), right.to_dense()
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    left, right = left.detach().resolve_conj(), right.detach().resolve_conj()
    return bool(torch.equal(*(t.resolve_neg().contiguous().flatten().view(torch.uint8)
                              if t.numel() else t for t in (left, right))))
