"""torch's own operator database, each sample between two lines that make nodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from onegraph.watch import Use
from tests.exactness.judge import Tally, compare, roots_of

Operator = Callable[..., Any]


@dataclass
class Survey:
    """What came of running samples of many operators."""

    ops: int = 0
    samples: int = 0
    forward: Tally = field(default_factory=Tally)
    backward: Tally = field(default_factory=Tally)
    different: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.ops} operators, {self.samples} samples; nodes of the forward pass: "
            f"{self.forward}; of derivatives: {self.backward}; "
            f"gradients that recording changed: {len(self.different)}, "
            f"that differ from run to run without it: {len(self.unsteady)}"
        )


def differentiable() -> list[Any]:
    """Every operator of the database that has a derivative for float64 on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if torch.float64 in op.supported_backward_dtypes("cpu")]


def survey(ops: list[Any], samples: int, *, in_place: bool = False) -> Survey:
    """Run so many samples of each operator, or of its in-place form, and judge their nodes."""
    result = Survey()
    for op in ops:
        run = op
        if in_place:
            run = _in_place(op)
        count = 0
        for sample in _samples(op, samples):
            if in_place and not _writable(run, sample):
                continue
            count += 1
            _try(run, op.full_name, sample, result)
        result.samples += count
        if count:
            result.ops += 1
        else:
            result.skipped.append(op.full_name)
    return result


def _samples(op: Any, most: int) -> Iterator[Any]:
    torch.manual_seed(0)
    return islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), most)


def _in_place(op: Any) -> Operator:
    def write(target: Any, *args: Any, **kwargs: Any) -> Any:
        copy = target * 1
        return op.inplace_variant(copy, *args, **kwargs)

    return write


def _writable(run: Operator, sample: Any) -> bool:
    """Whether the in-place form can take this sample at all."""
    try:
        _gradients(run, sample)
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return False
    return True


def _try(op: Operator, name: str, sample: Any, result: Survey) -> None:
    plain = _gradients(op, sample)
    use = Use(lines=True)
    session = use.begin()
    try:
        watched = _gradients(op, sample)
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            made = _between(op, sample)
            result.forward += compare(session.recorder, roots_of(made))
            twice = _derivatives(made[1], sample, twice=True)
            result.backward += compare(session.recorder, roots_of(twice))
    finally:
        use.end()
    if not _identical(plain, watched):
        # Some of LAPACK's results depend on where in memory its arrays happen to lie.
        if any(_identical(_elsewhere(op, sample, k), watched) for k in range(100)):
            result.unsteady.append(name)
        else:
            result.different.append(f"{name} {sample.summary()}")


def _elsewhere(op: Operator, sample: Any, shift: int) -> list[Any]:
    """The same, with the allocator in another state."""
    held = [torch.empty(8 * shift + 1 + k) for k in range(shift % 7)]
    found = _gradients(op, sample)
    del held
    return found


def _between(op: Operator, sample: Any) -> tuple[Any, Any, Any]:
    decoy = torch.ones(2, requires_grad=True)
    torch.manual_seed(0)
    before = decoy * 2
    made = op(sample.input, *sample.args, **sample.kwargs)
    after = decoy * 3
    return before, made, after


def _gradients(op: Operator, sample: Any) -> list[Any]:
    """What the operator returns, its gradients, and where the random numbers got to."""
    _, made, _ = _between(op, sample)
    found = _tensors(made) + _derivatives(made, sample, twice=False)
    return [*found, torch.get_rng_state()]


def _derivatives(made: Any, sample: Any, *, twice: bool) -> list[Any]:
    outputs = [
        t.to_dense() if t.is_sparse else t
        for t in _tensors(sample.output_process_fn_grad(made))
        if t.requires_grad
    ]
    inputs = [t for t in _tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    if not outputs or not inputs:
        return []
    ones = [torch.ones_like(t).requires_grad_(twice) for t in outputs]
    try:
        return list(
            torch.autograd.grad(outputs, inputs, ones, allow_unused=True, create_graph=twice)
        )
    except RuntimeError as error:
        # Some operators can be differentiated only once.
        if twice and "differentia" in str(error):
            return []
        raise


def _tensors(nested: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(nested) if isinstance(leaf, torch.Tensor)]


def _identical(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(_same_bits, left, right))


def _same_bits(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    return left.shape == right.shape and left.dtype == right.dtype and _bits(left) == _bits(right)


# numpy lacks these; every value of theirs is one of a larger type too.
_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def _bits(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.to(_WIDER.get(tensor.dtype, tensor.dtype)).numpy(force=True).tobytes()
