"""What is computed while the engine runs: hooks, recomputation, derivatives of derivatives."""

from __future__ import annotations

# fmt: off
# Where a line is broken is what these programs are about.
import functools
from typing import Any

import torch
from torch import nn
from torch.autograd.functional import hessian, hvp, jacobian, vhp
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

from tests.exactness.programs import program
from tests.exactness.programs.functions import leaf, scale, script

KEPT: list[Any] = []


def block(x: torch.Tensor) -> torch.Tensor:
    """A little network whose nodes are caught when it runs again."""
    y = x.exp()
    z = (
        y * 2
        + y.sin()
    )
    if z.requires_grad:
        KEPT.append(z)
        z = z.tanh()
        KEPT.append(z)
    return z


def watched(x: torch.Tensor) -> torch.Tensor:
    """The same with a Function applied by an alias."""
    y = scale(block(x), 2.0)
    if y.requires_grad:
        KEPT.append(y)
    return y


@program()
def recomputed() -> Any:
    """Nodes that a checkpoint makes again have the lines of the checkpointed code."""
    KEPT.clear()
    x = leaf()
    y = checkpoint(block, x * 1, use_reentrant=False)
    z = checkpoint(block, y, use_reentrant=False).sum()
    z.backward()
    return z, list(KEPT)


@program()
def recomputed_reentrant() -> Any:
    """The reentrant checkpoint's recomputation has lines too, and its own node the call's."""
    KEPT.clear()
    x = leaf()
    y = checkpoint(block, x * 1, use_reentrant=True)
    z = checkpoint(block, y, use_reentrant=True).sum()
    z.backward()
    return z, list(KEPT)


@program()
def recomputed_alias() -> Any:
    """An alias in recomputed code has its own line, not that of the backward call."""
    KEPT.clear()
    x = leaf()
    y = checkpoint(watched, x * 1, use_reentrant=False)
    y.sum().backward()
    return y, list(KEPT)


@program()
def recomputed_alias_reentrant() -> Any:
    """The same for the reentrant checkpoint, whose forward makes no nodes."""
    KEPT.clear()
    x = leaf()
    y = checkpoint(watched, x * 1, use_reentrant=True)
    y.sum().backward()
    return y, list(KEPT)


@program()
def recomputed_nested() -> Any:
    """Checkpoints within checkpoints are recomputed in the right lines."""
    KEPT.clear()

    def inner(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x.cos(), use_reentrant=False) * 2

    x = leaf()
    y = checkpoint(inner, x * 1, use_reentrant=False).sum()
    (grad,) = torch.autograd.grad(y, x, create_graph=True)
    return y, grad, list(KEPT)


@program()
def recomputed_sequence() -> Any:
    """A checkpointed nn.Sequential is recomputed within the backward call's line."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.ReLU())
    x = leaf(2, 3)
    y = checkpoint_sequential(net, 2, x * 1, use_reentrant=False).sum()
    y.backward()
    return y


@program()
def tensor_hooks() -> Any:
    """What tensor and node hooks compute with gradients has the hook's lines."""
    KEPT.clear()
    x = leaf()

    def hook(grad: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            weight = grad.detach().requires_grad_()
            KEPT.append(weight.exp() * 2)
            KEPT.append(torch.logsumexp(weight, 0))
        return grad * 1

    y = x.sin()
    y.register_hook(hook)
    y.register_hook(lambda grad: KEPT.append(grad.clone().requires_grad_().exp().sum()))
    z = y.exp()
    z.grad_fn.register_hook(lambda inputs, outputs: KEPT.append(leaf().cos()))
    z.grad_fn.register_prehook(lambda outputs: KEPT.append(leaf().sin()))
    x.register_post_accumulate_grad_hook(lambda x: KEPT.append(hook(leaf())))
    z.sum().backward()
    return z, list(KEPT)


@program()
def hook_alias() -> Any:
    """An alias in a hook has the hook's line, not that of the backward call."""
    KEPT.clear()
    x = leaf()
    y = x.sin()

    def hook(grad: torch.Tensor) -> None:
        with torch.enable_grad():
            KEPT.append(scale(grad.detach().requires_grad_(), 2.0))

    y.register_hook(hook)
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    torch.autograd.grad(y.sum(), x)
    return y, list(KEPT)


class Plain(torch.Tensor):
    """A tensor subclass with nothing of its own."""


@program(unknown=1)
def hook_unseen() -> Any:
    """A node that a hook makes where nobody looks has no line, not that of the backward call."""
    KEPT.clear()
    x = leaf()
    y = x.sin()

    def hook(grad: torch.Tensor) -> None:
        with torch.enable_grad():
            z = leaf() * 1
            KEPT.append(z.as_subclass(Plain))

    y.register_hook(hook)
    y.sum().backward()
    return y, list(KEPT)


@program()
def module_hooks() -> Any:
    """What module hooks compute has their lines, before, after and in backward."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    net[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    net[0].register_forward_hook(lambda module, args, out: out.exp())
    net[1].register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 2,))
    net.register_full_backward_pre_hook(lambda module, grad_out: (grad_out[0] * 2,))
    x = leaf(2, 3)
    y = net(x * 1)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y, grad


@program()
def saved_tensor_hooks() -> Any:
    """What pack and unpack hooks compute has their lines."""
    KEPT.clear()

    def pack(x: torch.Tensor) -> torch.Tensor:
        KEPT.append(leaf().exp())
        return x

    def unpack(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            KEPT.append(leaf().sin())
        return x

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.sin() * x
    y.sum().backward()
    return y, list(KEPT)


@program()
def double_backward() -> Any:
    """Nodes of derivatives belong to the call that made them, each order to its own."""
    x, w = leaf(4, 3), leaf(3, 5)
    y = torch.tanh(x @ w).pow(3).sum()
    first = torch.autograd.grad(y, [x, w], create_graph=True)
    second = torch.autograd.grad(
        sum(g.pow(2).sum() for g in first),
        [x, w],
        create_graph=True,
    )
    third = torch.autograd.grad(second[0].sum() + second[1].exp().sum(), w, create_graph=True)
    return y, first, second, third


@program()
def gradient_penalty() -> Any:
    """A backward with create_graph leaves the nodes of .grad to its own line."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ELU(), nn.Flatten(), nn.Linear(8, 1))
    x = leaf(2, 1, 4, 4)
    loss = net(x).sum()
    loss.backward(create_graph=True)
    penalty = sum(p.grad.pow(2).sum() for p in net.parameters())
    assert isinstance(penalty, torch.Tensor)
    penalty.backward(create_graph=True)
    return penalty, [p.grad for p in net.parameters()]


@program()
def functionals() -> Any:
    """The functional derivatives' inner calls belong to the line that asks for them."""

    def energy(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * x).sum()

    x = leaf()
    a = hessian(energy, x, create_graph=True)
    b = jacobian(
        lambda x: x.sin() * energy(x),
        x,
        create_graph=True,
        vectorize=True,
    )
    c = vhp(energy, x, torch.ones(3), create_graph=True)
    d = hvp(energy, x, torch.ones(3), create_graph=True)
    return a, b, c, d


@program()
def transforms() -> Any:
    """Functional transforms over graph tensors make nodes in their call's or function's lines."""
    from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap

    w = leaf()

    def energy(x: torch.Tensor) -> torch.Tensor:
        y = x * w
        return (y.exp() * x).sum()

    x = leaf()
    a = grad(energy)(x)
    b = vmap(grad(energy))(leaf(2, 3))
    c = jacrev(grad(energy))(x)
    d = jacfwd(energy)(x)
    e, pull = vjp(energy, x)
    f = pull(torch.ones(()))
    g = jvp(energy, (x,), (torch.ones(3),))
    net = nn.Linear(3, 1)
    h = functional_call(net, {"weight": leaf(1, 3) * 2}, (x,))
    return a, b, c, d, e, f, g, h


@program()
def reentrant() -> Any:
    """A backward within a hook is a call of its own, in the hook's line."""
    KEPT.clear()
    x = leaf()
    y = x.exp()

    def hook(grad: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            loss = (z * z.exp()).sum()
            (inner,) = torch.autograd.grad(loss, z, create_graph=True)
            KEPT.append(inner)
        return grad + inner.detach()

    y.register_hook(hook)
    y.sum().backward()
    return y, list(KEPT)


@program()
def failing() -> Any:
    """After a call that raised, in the engine or out of it, the lines are right again."""
    KEPT.clear()
    x = leaf()
    y = x.exp()

    def hook(grad: torch.Tensor) -> None:
        with torch.enable_grad():
            KEPT.append(grad.detach().requires_grad_().sin())
        raise ValueError("on purpose")

    y.register_hook(hook)
    for _ in range(2):
        try:
            y.sum().backward(retain_graph=True)
        except ValueError:
            KEPT.append(y.cos())
        try:
            torch.cat([y, y.reshape(1, 3) * 2])
        except (RuntimeError, IndexError):
            KEPT.append(y.sin())
    return list(KEPT), y.sum()


@program()
def partial() -> Any:
    """A partial and a bound method run in the lines of the functions they stand for."""
    KEPT.clear()
    x = leaf()

    def hook(factor: float, grad: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            KEPT.append(leaf() * factor)
        return grad * factor

    y = x.exp()
    y.register_hook(functools.partial(hook, 2.0))
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y, grad, list(KEPT)


@script
def scripted_block(x: torch.Tensor) -> torch.Tensor:
    """Compiled before recording began."""
    return x.exp() * x.sin()


def scripted_caught(x: torch.Tensor) -> torch.Tensor:
    """Runs compiled code among other nodes."""
    y = scripted_block(x * 1)
    if y.requires_grad:
        KEPT.append(y)
    return y


@program()
def scripted_recomputed() -> Any:
    """Nodes that compiled code makes in a recomputation never get the backward call's line."""
    KEPT.clear()
    x = leaf()
    with set_checkpoint_early_stop(False):
        y = checkpoint(scripted_caught, x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward(create_graph=True)
    return y, list(KEPT)
