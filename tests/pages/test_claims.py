"""What the pages say of repairs and of what is none, each tried on the page's own program."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.autograd import grad
from torch.utils.checkpoint import checkpoint

from tests.pages.running import PAGES, causes, run

INPLACE = "modified by an inplace operation"
ENDS = ("    optimizer.step()\n", "    optimizer.step()\n    print('gradient:', {})\n")

Edit = tuple[str, str]


def ends(expression: str) -> Edit:
    """Print an expression after each step."""
    return ENDS[0], ENDS[1].format(expression)


# (page, edits to its failing program, the cause then found or None, what it prints or raises)
VARIANTS: dict[str, tuple[str, list[Edit], str | None, str]] = {
    "clone of a state": (
        "carried-state", [("cell(x, h)", "cell(x, h.clone())")], "carried-state", ""
    ),
    "zero_ of a state": (
        "carried-state", [("    h = cell", "    h.zero_()\n    h = cell")], "carried-state", ""
    ),
    "zero_ under no_grad": (
        "carried-state",
        [("    h = cell", "    with torch.no_grad():\n        h.zero_()\n    h = cell")],
        "carried-state",
        "",
    ),
    "zeros_like of a state": (
        "carried-state", [("    h = cell", "    h = torch.zeros_like(h)\n    h = cell")], None, ""
    ),
    "deleting the loss": (
        "carried-state",
        [("    print(step, loss.item())", "    del loss\n    __import__('gc').collect()")],
        "carried-state",
        "",
    ),
    "retaining a state": (
        "carried-state",
        [("backward()", "backward(retain_graph=True)")],
        "optimizer-step-between",
        INPLACE,
    ),
    "detaching where the state is read": (
        "carried-state", [("cell(x, h)", "cell(x, h.detach())")], None, ""
    ),
    "retaining what stands before the loop": (
        "built-outside-loop",
        [
            ("backward()", "backward(retain_graph=True)"),
            ends("torch.equal(graph, mixing.softmax(dim=1))"),
        ],
        None,
        "gradient: False",
    ),
    "detaching what stands before the loop": (
        "built-outside-loop",
        [("softmax(dim=1)", "softmax(dim=1).detach()"), ends("mixing.grad")],
        "detach-cut",
        "gradient: None",
    ),
    "clone inside the loop": (
        "built-outside-loop", [("graph @ x", "graph.clone() @ x")], "built-outside-loop", ""
    ),
    "one backward after the loop": (
        "built-outside-loop",
        [
            ("for step in", "losses = []\nfor step in"),
            ("    loss.backward()\n    optimizer.step()\n", "    losses.append(loss)\n"),
            ("    print(step, loss.item())\n", "sum(losses).backward()\noptimizer.step()\n"),
        ],
        None,
        "",
    ),
    "retaining a cached tensor": (
        "cached-on-module",
        [("backward()", "backward(retain_graph=True)")],
        "optimizer-step-between",
        INPLACE,
    ),
    "storing a tensor detached": (
        "cached-on-module",
        [
            ("self.encoder(self.names)", "self.encoder(self.names).detach()"),
            ends("(model.names.grad, model.encoder[0].weight.grad)"),
        ],
        "detach-cut",
        "gradient: (None, None)",
    ),
    "clone of shared features": (
        "several-losses-one-graph",
        [("label_head(features)", "label_head(features.clone())")],
        "several-losses-one-graph",
        "",
    ),
    "retaining in the first of two calls": (
        "several-losses-one-graph",
        [("depth_loss.backward()", "depth_loss.backward(retain_graph=True)")],
        None,
        "",
    ),
    "detaching for one of two losses": (
        "several-losses-one-graph",
        [("label_head(features)", "label_head(features.detach())")],
        None,
        "",
    ),
    "clone of slices": (
        "sliced-or-blocked",
        [("features[i : i + 2] -", "features[i : i + 2].clone() -")],
        "sliced-or-blocked",
        "",
    ),
    "cutting before the parts": (
        "sliced-or-blocked",
        [
            ("features = encoder(frames)", "whole = encoder(frames)\n    "
             "features = whole.detach().requires_grad_()"),
            ("    optimizer.step()", "    whole.backward(features.grad)\n    optimizer.step()"),
        ],
        None,
        "",
    ),
    "retaining one loss": (
        "same-loss-twice",
        [("backward()", "backward(retain_graph=True)")],
        "optimizer-step-between",
        INPLACE,
    ),
    "retaining a running sum": (
        "running-sum-loss",
        [("backward()", "backward(retain_graph=True)")],
        "optimizer-step-between",
        INPLACE,
    ),
    "an evaluating teacher": (
        "undetached-target", [("teacher(x)", "teacher.eval()(x)")], "undetached-target", ""
    ),
    "clone of a target": (
        "undetached-target", [("teacher(x)", "teacher(x).clone()")], "undetached-target", ""
    ),
    "a frozen teacher": (
        "undetached-target", [("teacher(x)", "teacher.requires_grad_(False)(x)")], None, ""
    ),
    "a teacher under no_grad": (
        "undetached-target",
        [("wanted = teacher(x)", "with torch.no_grad():\n    wanted = teacher(x)")],
        None,
        "",
    ),
    "retaining a target": (
        "undetached-target",
        [("backward()", "backward(retain_graph=True)"), ends("teacher[0].weight.grad is None")],
        None,
        "gradient: False",
    ),
    "a new target at every step": (
        "undetached-target",
        [
            ("    loss = ", "    wanted = teacher(x)\n    loss = "),
            ends("teacher[0].weight.grad is None"),
        ],
        None,
        "gradient: False",
    ),
    "retaining in autograd.grad": (
        "grad-then-backward", [("grad(score, x)", "grad(score, x, retain_graph=True)")], None, ""
    ),
    "retaining in the last call": (
        "grad-then-backward",
        [("backward()", "backward(retain_graph=True)")],
        "grad-then-backward",
        "",
    ),
    "retaining saved tensors": (
        "saved-tensor-access", [("backward()", "backward(retain_graph=True)")], None, ""
    ),
    "retaining around checkpoints": (
        "reentrant-checkpoint",
        [("backward()", "backward(retain_graph=True)")],
        "reentrant-checkpoint",
        "",
    ),
    "the other kind of checkpoint": (
        "reentrant-checkpoint", [("use_reentrant=True", "use_reentrant=False")], None, ""
    ),
    "detaching in a checkpoint": (
        "reentrant-checkpoint",
        [("* context", "* context.detach()"), ends("encoder[0].weight.grad")],
        "detach-cut",
        "gradient: None",
    ),
    "clone in a checkpoint": (
        "reentrant-checkpoint", [("* context", "* context.clone()")], "reentrant-checkpoint", ""
    ),
    "not compiled": ("compile", [('@torch.compile(backend="aot_eager")\n', "")], None, ""),
    "compiled separately": (
        "compile",
        [
            ('@torch.compile(backend="aot_eager")\n', ""),
            ("both(*towers,", "both(*[torch.compile(t, backend='aot_eager') for t in towers],"),
        ],
        None,
        "",
    ),
    "retaining a compiled region": (
        "compile", [("user_loss.backward()", "user_loss.backward(retain_graph=True)")], None, ""
    ),
    "clone before a step between": (
        "optimizer-step-between",
        [("label_head(features)", "label_head(features.clone())")],
        "optimizer-step-between",
        INPLACE,
    ),
    "forward again after a step": (
        "optimizer-step-between",
        [
            ("(retain_graph=True)", "()"),
            ("    label_loss.backward()", "    label_loss = nn.functional.cross_entropy("
             "label_head(encoder(x)), label)\n    label_loss.backward()"),
        ],
        None,
        "",
    ),
}  # fmt: skip


def edited(page: str, edits: list[Edit]) -> str:
    """A page's failing program with every edit made."""
    text = (PAGES / page / "fails.py").read_text("utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_page_says_of_a_change_is_so(name: str) -> None:
    """A change that a page mentions repairs, fails or misleads as the page says."""
    page, edits, cause, told = VARIANTS[name]
    found = run("fails.py", edited(page, edits))
    assert causes(found) == ([] if cause is None else [cause])
    # A gradient that is cut raises nothing.
    assert found.status == (0 if cause in (None, "detach-cut") else 1)
    assert told in found.out + found.err


@pytest.mark.usefixtures("torch_loaded")
def test_buffer_keeps_its_history() -> None:
    """cached-on-module: `register_buffer` is no repair."""
    stored, buffer = "self.classes = self.encoder(self.names)", "self.encoder(self.names)"
    program = edited("cached-on-module", [(stored, f'self.register_buffer("classes", {buffer})')])
    (cause,) = causes(run("fails.py", program))
    assert cause in ("cached-on-module", "built-outside-loop")


# What the pages say of gradients.


def gradients(losses: list[torch.Tensor], weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of the losses' sum, each loss walked on its own."""
    each = [grad(loss, weights, retain_graph=True, allow_unused=True) for loss in losses]
    return [sum(g for g in of if g is not None) for of in zip(*each, strict=True)]  # type: ignore[misc]


def alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether two lists of gradients are equal up to rounding."""
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, other, strict=True))


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with a tanh between each two."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_gradient_of_a_sum_is_the_sum_of_the_gradients() -> None:
    """several-losses-one-graph, running-sum-loss, compile: adding up changes nothing."""
    model = mlp(4, 8, 2)
    out = model(torch.randn(8, 4))
    losses = [out[:, 0].square().mean(), out[:, 1].exp().mean()]
    weights = list(model.parameters())
    assert alike(gradients(losses, weights), list(grad(sum(losses), weights)))  # type: ignore[arg-type]


def test_parts_behind_a_cut_give_the_same_gradient() -> None:
    """sliced-or-blocked: backward part by part into a leaf, then once through the rest."""
    model, x = mlp(4, 8, 8), torch.randn(6, 4)
    losses = [model(x)[i : i + 2].square().sum() for i in range(0, 6, 2)]
    wanted = gradients(losses, list(model.parameters()))
    whole = model(x)
    features = whole.detach().requires_grad_()
    for i in range(0, 6, 2):
        features[i : i + 2].square().sum().backward()
    whole.backward(features.grad)
    assert alike([p.grad for p in model.parameters() if p.grad is not None], wanted)


def test_detached_target_leaves_the_prediction_its_gradient() -> None:
    """undetached-target: the student's gradient is the same with the teacher's history or not."""
    teacher, student, x = mlp(4, 8, 2), nn.Linear(4, 2), torch.randn(8, 4)
    weights = list(student.parameters())
    with_history = grad((student(x) - teacher(x)).square().mean(), weights)
    without = grad((student(x) - teacher(x).detach()).square().mean(), weights)
    assert alike(list(with_history), list(without))


def test_penalty_trains_with_create_graph_alone() -> None:
    """grad-then-backward: with retain_graph the penalty is a constant without effect."""
    critic, x = mlp(4, 8, 1), torch.randn(8, 4, requires_grad=True)
    weights = list(critic.parameters())[:3]
    plain = list(grad(critic(x).mean(), weights))
    score = critic(x).mean()
    (slope,) = grad(score, x, retain_graph=True)
    retained = list(grad(score + 10 * (slope.norm(dim=1) - 1).square().mean(), weights))
    score = critic(x).mean()
    (slope,) = grad(score, x, create_graph=True)
    created = list(grad(score + 10 * (slope.norm(dim=1) - 1).square().mean(), weights))
    assert alike(retained, plain)
    assert not alike(created, plain)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_change_no_gradient(reentrant: bool) -> None:
    """reentrant-checkpoint: both repairs give the gradient of the program without checkpoints."""
    encoder, layer = mlp(4, 8), nn.Linear(8, 8)
    x, source = torch.randn(2, 8, requires_grad=True), torch.randn(2, 4)
    weights = [*encoder.parameters(), *layer.parameters()]

    def block(x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return torch.tanh(layer(x) * context)

    context = encoder(source)
    wanted = list(grad(block(block(x, context), context).sum(), weights))
    context, out = encoder(source), x
    for _ in range(2):
        out = checkpoint(block, out, context, use_reentrant=reentrant)
    out.sum().backward()
    assert alike([p.grad for p in weights if p.grad is not None], wanted)


def test_losses_of_two_optimizers_pollute_each_other() -> None:
    """optimizer-step-between: the actor's loss also fills the critic's gradients."""
    actor, critic = mlp(4, 8, 2), mlp(2, 8, 1)
    value = critic(actor(torch.randn(8, 4)))
    critic_loss, actor_loss = (value - 1).square().mean(), -value.mean()
    weights = list(critic.parameters())
    own = list(grad(critic_loss, weights, retain_graph=True))
    assert not alike(own, list(grad(critic_loss + actor_loss, weights)))


def test_step_through_data_gives_a_wrong_gradient_silently() -> None:
    """optimizer-step-between: `.data` hides the write from torch, not from the gradient."""
    model, x = mlp(4, 8, 1), torch.randn(8, 4)
    loss = model(x).square().mean()
    wanted = grad(loss, [model[0].weight], retain_graph=True)
    model[2].weight.data.add_(1.0)
    assert not alike(list(grad(loss, [model[0].weight])), list(wanted))


def test_learned_initial_state_is_trained_by_the_first_window_alone() -> None:
    """carried-state: what stands before the cut gets no gradient from behind it."""
    cell, start = nn.GRUCell(4, 8), nn.Parameter(torch.zeros(2, 8))
    h = cell(torch.randn(2, 4), start)
    (first,) = grad(h.sum(), start, allow_unused=True)
    h = cell(torch.randn(2, 4), h.detach())
    (second,) = grad(h.sum(), start, allow_unused=True)
    assert first is not None
    assert second is None


def test_loss_counted_twice_is_twice_the_loss() -> None:
    """same-loss-twice: `(2 * loss).backward()` is what two calls would give."""
    model, x = mlp(4, 8, 1), torch.randn(8, 4)
    weights = list(model.parameters())
    loss = model(x).square().mean()
    assert alike(gradients([loss, loss], weights), list(grad(2 * loss, weights)))
