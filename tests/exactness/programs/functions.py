"""Custom autograd.Functions."""

from __future__ import annotations

# fmt: off
# Where a line is broken is what these programs are about.
import warnings
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.exactness.programs import program


class Scale(Function):
    """Multiplies by a number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        extra = (
            x.sin().sum()
            - x.sin().sum()
        )
        return grad * ctx.factor + extra, None


class Outer(Function):
    """Calls another Function, and computes with gradients, in its forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        with torch.enable_grad():
            inner = Scale.apply(x.detach().requires_grad_(), 2.0)
            inner = inner.tanh()
            ctx.kept = inner
        return Scale.apply(x, 3.0).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = Scale.apply(
                x,
                3.0,
            )
            KEPT.append(again)
        return Scale.apply(grad, 3.0)


class SetUp(Function):
    """Has its own set-up of the context, and so works under functorch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.pow(3)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return SetUp.apply(x) * grad


class Once(Function):
    """May be differentiated once."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right * 2


class InPlace(Function):
    """Writes into its input, which may be a view."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


class Passing(Function):
    """Gives its input back, which makes a view of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class Aliased(Function):
    """Calls Functions by names bound before recording began."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = x.detach().requires_grad_() * 1
            KEPT.append(scale(y, 2.0))
            KEPT.append(y.tanh())
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = grad.detach().requires_grad_()
            KEPT.append(scale(y, 2.0))
        return grad * 1


KEPT: list[Any] = []
scale = Scale.apply
passing = Passing.apply
aliased = Aliased.apply


def script(function: Any) -> Any:
    """Compile for TorchScript, which warns that its days are over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


def leaf(*shape: int) -> torch.Tensor:
    """A tensor to differentiate by."""
    return torch.rand(*(shape or (3,)), requires_grad=True)


@program()
def plain() -> Any:
    """A Function's node belongs to the line that applies it, not to lines in its forward."""
    x = leaf()
    y = Scale.apply(x * 1, 2.0)
    z = Scale.apply(
        y.exp(),
        2.0,
    )
    return z.sum()


@program()
def alias() -> Any:
    """A Function applied by a name bound before recording began has its line all the same."""
    x = leaf()
    y = x * 1
    y = scale(y, 2.0)
    y = y.exp()
    y = passing(y)
    return y.sum()


@program()
def nested() -> Any:
    """What a Function computes with gradients in its forward and backward has its own lines."""
    KEPT.clear()
    x = leaf()
    y = Outer.apply(x.exp())
    y.sum().backward()
    kept = [ctx for ctx in [y.grad_fn] if ctx is not None]
    return y, [node.kept for node in kept], list(KEPT)


@program()
def alias_within() -> Any:
    """An alias inside another Function has its own line, not the other's."""
    KEPT.clear()
    x = leaf()
    y = Aliased.apply(x.exp())
    y = aliased(y)
    y.sum().backward()
    return y, list(KEPT)


@program()
def set_up() -> Any:
    """A Function with setup_context is seen through functorch's detour too."""
    x = leaf()
    y = SetUp.apply(x + 1)
    z = torch.vmap(SetUp.apply)(y)
    w = torch.vmap(lambda row: SetUp.apply(row) * 2)(leaf(3, 2))
    return y, z, w


@program()
def once() -> Any:
    """The node that refuses a second derivative belongs to the call that made it."""
    x = leaf()
    a, b = Once.apply(x * 1)
    (grad,) = torch.autograd.grad((a + b).sum(), x, create_graph=True)
    return a, b, grad


@program()
def twice() -> Any:
    """Double-backward nodes of a Function belong to the call, its backward's to their lines."""
    x = leaf()
    y = Scale.apply(x.exp(), 2.0)
    z = SetUp.apply(y)
    w = Outer.apply(z)
    (grad,) = torch.autograd.grad(w.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x, create_graph=True)
    return w, grad, second


@program()
def dirty() -> Any:
    """A Function that writes into a view makes the base's node, in the line that applies it."""
    x = leaf(4)
    base = x * 1
    view = base[:2]
    InPlace.apply(view)
    other = x.exp()
    other = InPlace.apply(other)
    return base, view, base.sin(), view.cos(), other


@program()
def given_back() -> Any:
    """A Function that gives its input back has one node."""
    x = leaf()
    return Passing.apply(x * 1) + Passing.apply(x)


@program()
def method() -> Any:
    """A class method that applies a Function is where the node is from, not its caller."""

    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = Scale.apply(x, 2.0)
            return x + 1

    return Layer()(leaf())
