"""Recording keeps nothing of the program's alive."""

import gc
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import onegraph
from onegraph.recorder.session import Recorder
from onegraph.watch import Session, Use

Watched = list[Any]


class Marked(torch.autograd.Function):
    """Its context, which lives as long as the graph, holds an object that can be watched."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, watched: Watched) -> torch.Tensor:
        ctx.token = Token()
        watched.append(weakref.ref(ctx.token))
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.saved_tensors[0], None


class Token:
    """Something to hold a weak reference to."""


def watch(watched: Watched, *things: Any) -> None:
    """Remember things weakly."""
    watched.extend(map(weakref.ref, things))


def forward(watched: Watched) -> torch.Tensor:
    """Tensors between a leaf and a loss."""
    x = torch.rand(3, requires_grad=True)
    y = Marked.apply(x.exp(), watched)
    z = y.sin()
    watch(watched, x, y, z)
    return z.sum()


def never_backward(watched: Watched) -> None:
    """A forward pass alone."""
    watch(watched, forward(watched))


def backward(watched: Watched) -> None:
    """A step of training, which frees its graph."""
    loss = forward(watched)
    loss.backward()
    watch(watched, loss)


def retained(watched: Watched) -> None:
    """Backward calls that keep the graph, and make one of their own."""
    x = torch.rand(3, requires_grad=True)
    loss = Marked.apply(x, watched).exp().sum()
    loss.backward(retain_graph=True)
    loss.backward(create_graph=True)
    # The gradient and its leaf hold one another.
    x.grad = None
    watch(watched, loss, x)


def second_derivative(watched: Watched) -> None:
    """Gradients of gradients."""
    x = torch.rand(3, requires_grad=True)
    y = Marked.apply(x, watched).pow(3)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (more,) = torch.autograd.grad(grad.sum(), x)
    watch(watched, x, y, grad, more)


def hooks(watched: Watched) -> None:
    """Hooks that see tensors."""
    x = torch.rand(3, requires_grad=True)
    y = Marked.apply(x, watched)
    y.register_hook(lambda grad: watch(watched, grad))
    x.register_post_accumulate_grad_hook(lambda x: watch(watched, x.grad))
    (y * 2).sum().backward()
    watch(watched, x, y)


def in_place(watched: Watched) -> None:
    """Writes to leaves, to tensors of the graph, and by an optimizer."""
    x = torch.rand(3, requires_grad=True)
    y = Marked.apply(x, watched)
    z = y * 1
    z[0] = 2.0
    z += 1
    z.sum().backward()
    torch.optim.Adam([x]).step()
    with torch.no_grad():
        x.mul_(2)
    watch(watched, x, y, z)


def modules(watched: Watched) -> None:
    """Modules, their parameters and what they compute."""
    net = nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 3), nn.MultiheadAttention(3, 1))
    out, _ = net[1](net[0](torch.rand(2, 3)))
    out, _ = net[2](out, out, out)
    out.sum().backward()
    watch(watched, net, *net.parameters(), out)


def checkpoints(watched: Watched) -> None:
    """Recomputed tensors."""
    x = torch.rand(3, requires_grad=True)

    def block(x: torch.Tensor) -> torch.Tensor:
        y = Marked.apply(x, watched)
        watch(watched, y)
        return y.exp()

    for reentrant in (False, True):
        y = checkpoint(block, x, use_reentrant=reentrant)
        y.sum().backward()
        watch(watched, y)
    watch(watched, x)


def subclasses(watched: Watched) -> None:
    """Tensors of a class with its own handling of functions."""

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.rand(3).as_subclass(Logged).requires_grad_()
    y = x.exp() * 2
    y.sum().backward()
    watch(watched, x, y)


def raising(watched: Watched) -> None:
    """Calls that fail, out of the engine, in it, and with a graph that was freed."""
    loss = forward(watched)
    x = torch.rand(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="must match"):
        x * torch.rand(4)
    y = Marked.apply(x, watched)
    y.register_hook(lambda grad: grad.does_not_exist)
    with pytest.raises(AttributeError):
        y.sum().backward()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    watch(watched, loss, x, y)


def explained(watched: Watched) -> None:
    """A failure that is explained, while its traceback holds the tensors."""
    loss = forward(watched)
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        report = onegraph.diagnose(error)
    if Session.current is not None:
        assert [finding.symptom for finding in report.findings] == ["second-backward"]
    watch(watched, loss)


PROGRAMS: tuple[Callable[[Watched], None], ...] = (
    never_backward,
    backward,
    retained,
    second_derivative,
    hooks,
    in_place,
    modules,
    checkpoints,
    subclasses,
    raising,
    explained,
)


def alive_after(program: Callable[[Watched], None], *, collect: bool) -> list[str]:
    """What is still there of a program that returned."""
    watched: Watched = []
    gc.disable()
    # What was there before is none of this, and takes long to look through.
    gc.freeze()
    try:
        program(watched)
        if collect:
            gc.collect()
        return [type(ref()).__name__ for ref in watched if ref() is not None]
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_tensors_go_when_the_program_lets_go(program: Callable[[Watched], None]) -> None:
    """With recording on, a tensor or graph goes as soon as it would without, cycles or not."""
    # The first run may import things, which the garbage collector then looks after.
    _, bare = alive_after(program, collect=False), alive_after(program, collect=False)
    use = Use(lines=True)
    session = use.begin()
    try:
        for _ in range(2):
            assert alive_after(program, collect=False) == bare
        assert alive_after(program, collect=True) == []
        assert [*_tensors_below([session.recorder, session.traces])] == []
    finally:
        use.end()


def _tensors_below(start: Any) -> Iterator[Any]:
    """Tensors, graph nodes and frames that can be reached from our objects."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, ModuleType):
            continue
        seen.add(id(item))
        if isinstance(item, (torch.Tensor, torch.autograd.graph.Node, FrameType, TracebackType)):
            yield item
        elif isinstance(item, FunctionType):
            # Not its globals, which are a module's.
            stack.extend(cell.cell_contents for cell in item.__closure__ or () if _filled(cell))
        elif isinstance(item, type) and not item.__module__.startswith("onegraph."):
            continue
        else:
            stack.extend(gc.get_referents(item))


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def test_the_search_for_tensors_finds_one() -> None:
    """The search that finds no tensor below the recorder finds one that is hidden there."""
    recorder = Recorder()
    assert [*_tensors_below(recorder)] == []
    tensor = torch.rand(1)
    recorder.texts["hidden"] = lambda: tensor  # type: ignore[assignment]
    assert [*_tensors_below(recorder)] == [tensor]
