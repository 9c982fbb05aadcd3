"""A window as one node: both engines do what the cell does, a step after the other."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from onegraph.ntm import NTM, NTMCell
from onegraph.ntm.cell import keep_inactive
from onegraph.ntm.controllers import map_nest
from onegraph.ntm.window import choice, function

INPUT = 3


def make_cell(dtype=torch.float64, scale=3.0, **options):
    """A cell whose heads say something, the same at every call."""
    torch.manual_seed(0)
    options = {"memory": (7, 5), "hidden_size": 6, **options}
    cell = NTMCell(INPUT, **options).to(dtype)
    with torch.no_grad():
        for parameter in cell.heads.parameters():
            parameter.mul_(scale)
    return cell


def make_case(cell, steps, batch, masked=False, seed=1):
    """Inputs, a state in the middle of things, and a mask, of the cell's type."""
    generator = torch.Generator().manual_seed(seed)
    dtype = cell.heads.weight.dtype

    def draw(*size):
        return torch.randn(size, generator=generator, dtype=dtype)

    state = map_nest(lambda like: draw(*like.shape), cell.initial_state(batch))
    state = state._replace(weightings=state.weightings.softmax(-1))
    active = torch.rand(steps, batch, generator=generator) > 0.4 if masked else None
    return draw(steps, batch, INPUT), state, active


def leaves(nest):
    """The tensors of a nest, in order."""
    found = []
    map_nest(lambda each: found.append(each) or each, nest)
    return found


def by_steps(cell, inputs, state, active=None):
    """What `NTMCell.unroll` does, by calls of the cell."""
    outputs, reads = [], []
    for t, x in enumerate(inputs.unbind(0)):
        output, after = cell.step(x, state)
        state = after if active is None else keep_inactive(active[t], after, state)
        outputs.append(output)
        reads.append(state.reads)
    return torch.stack(outputs), torch.stack(reads), state


def derivatives(cell, unroll, case):
    """What a window gives, and the derivatives of a weighted sum of it all by all there is."""
    inputs, state, active = case
    inputs = inputs.clone().requires_grad_()
    state = map_nest(lambda each: each.clone().requires_grad_(), state)
    outputs, reads, after = unroll(inputs, state, active)
    if active is not None:
        # Where a sample is not active its output holds no meaning.
        outputs = outputs * active.unsqueeze(-1)
    results = [outputs, reads, *leaves(after)]
    generator = torch.Generator().manual_seed(2)
    weights = [torch.randn(each.shape, generator=generator).to(each) for each in results]
    by = [inputs, *leaves(state), *cell.parameters()]
    found = torch.autograd.grad(results, by, weights, allow_unused=True)
    return [each.detach() for each in results], found


def compare(cell, case):
    """How far a window is from the steps of the cell: its results, and its derivatives."""
    results, found = derivatives(cell, cell.unroll, case)
    wanted_results, wanted = derivatives(cell, lambda *rest: by_steps(cell, *rest), case)
    return (
        max(distance(a, b) for a, b in zip(results, wanted_results, strict=True)),
        max(distance(a, b) for a, b in zip(found, wanted, strict=True)),
    )


def distance(one, other):
    """The largest difference, relative where numbers are large."""
    assert one.shape == other.shape
    if not one.numel():
        return 0.0
    return float(((one - other).abs() / (1 + other.abs())).max().detach())


OPTIONS = [
    {"controller": controller, "read_heads": read, "write_heads": write, "shift_range": reach,
     "clip": clip, "tanh": tanh}
    for controller, (read, write, reach, clip, tanh) in itertools.product(
        ("lstm", "feedforward"),
        ((1, 1, 1, None, True), (2, 3, 2, None, False),
         (1, 2, 0, 1.0, True), (3, 1, 9, 2.0, False)),
    )
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_a_window_is_what_its_steps_are(engine, options, masked):
    """Results and derivatives of a window are those of the cell's steps, for every option."""
    for size, batch in (((7, 5), 3), ((3, 1), 1), ((33, 17), 9)):
        cell = make_cell(memory=size, **options)
        assert max(compare(cell, make_case(cell, 6, batch, masked))) < 1e-10


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", ["kernel", "steps"])
def test_any_sizes(name, data, request):
    """Nor does any size matter, one or none included."""
    if name == "kernel":
        request.getfixturevalue("built")
    draw = data.draw
    cell = make_cell(
        memory=(draw(st.integers(1, 40)), draw(st.integers(1, 20))),
        controller=draw(st.sampled_from(["lstm", "feedforward"])),
        hidden_size=draw(st.integers(1, 40)),
        read_heads=draw(st.integers(1, 5)),
        write_heads=draw(st.integers(1, 5)),
        shift_range=draw(st.integers(0, 6)),
        clip=draw(st.sampled_from([None, 0.5])),
        tanh=draw(st.booleans()),
    )
    case = make_case(cell, draw(st.integers(1, 5)), draw(st.integers(0, 8)), draw(st.booleans()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice.kernel, "load", lambda: name == "kernel")
        assert max(compare(cell, case)) < 1e-9


@pytest.mark.parametrize("steps", [41, 1000])
def test_long_windows_in_float64(engine, steps):
    """Of the published size, a long window is within 1e-10 of its steps."""
    cell = make_cell(memory=(128, 20), hidden_size=100, scale=1.0)
    assert max(compare(cell, make_case(cell, steps, 2))) < 1e-10


def test_float32_is_as_exact_as_the_steps_are(engine):
    """In float32, a window is at most twice as far from float64 as the cell's steps are."""
    for seed in range(3):
        exact = make_cell(memory=(128, 20), hidden_size=100, scale=1.0)
        rough = make_cell(torch.float32, memory=(128, 20), hidden_size=100, scale=1.0)
        case = make_case(rough, 41, 4, seed=seed)
        doubled = map_nest(lambda each: each.double(), case[:2])
        truth = derivatives(exact, exact.unroll, (*doubled, None))
        ours = derivatives(rough, rough.unroll, case)
        theirs = derivatives(rough, lambda *rest, cell=rough: by_steps(cell, *rest), case)
        for part, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            far = max(distance(x.double(), y) for x, y in zip(a, truth[part], strict=True))
            allowed = max(distance(x.double(), y) for x, y in zip(b, truth[part], strict=True))
            assert far <= 2 * allowed


def pinned(cell, **values):
    """The cell with the bias of every head's strength or sharpening at an extreme."""
    place = {"strength": cell.width, "sharpen": cell.width + 1}
    heads = cell.read_heads + cell.write_heads
    row = cell.width + 4 + 2 * cell.shift_range
    with torch.no_grad():
        for name, value in values.items():
            cell.heads.bias[place[name] : heads * row : row] = value
    return cell


def as_function(cell, state):
    """The window as a function of its inputs, its state and the cell's parameters."""
    names = [name for name, _ in cell.named_parameters()]
    count = len(leaves(state))

    def window(inputs, *rest):
        parts = iter(rest[:count])
        given_state = map_nest(lambda _: next(parts), state)
        model = copy.copy(cell)
        model._modules = {name: copy.copy(each) for name, each in cell._modules.items()}
        for each in model._modules.values():
            each._modules = {inner: copy.copy(part) for inner, part in each._modules.items()}
            each._parameters = dict(each._parameters)
            for part in each._modules.values():
                part._parameters = dict(part._parameters)
        for name, value in zip(names, rest[count:], strict=True):
            *path, last = name.split(".")
            owner = model
            for step in path:
                owner = owner._modules[step]
            owner._parameters[last] = value
        outputs, reads, after = model.unroll(inputs, given_state)
        return outputs, reads, *leaves(after)

    return window


EXTREMES = {
    "plain": {},
    "strength 50": {"strength": 50.0},
    "sharpen 60": {"sharpen": 60.0},
    "strength -30": {"strength": -30.0, "sharpen": -30.0},
}


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("controller", ["lstm", "feedforward"])
def test_derivatives(engine, controller, extreme):
    """The derivatives are those that finite differences find, at one-hot weightings too."""
    options = {"read_heads": 1, "write_heads": 2, "memory": (5, 3), "hidden_size": 4}
    cell = pinned(make_cell(scale=0.7, controller=controller, **options), **EXTREMES[extreme])
    inputs, state, _ = make_case(cell, 3, 2)
    if extreme == "plain":
        one_hot = torch.zeros_like(state.weightings)
        one_hot[..., 1] = 1
        state = state._replace(weightings=one_hot, memory=torch.full_like(state.memory, 1e-3))
    parts = [inputs, *leaves(state), *cell.parameters()]
    parts = [each.detach().clone().requires_grad_() for each in parts]
    window = as_function(cell, state)
    assert gradcheck(window, parts, fast_mode=True)
    assert gradgradcheck(window, parts, fast_mode=True)


def test_second_derivatives_are_those_of_the_steps(engine):
    """A derivative taken with create_graph has the derivatives that the cell's steps have."""
    cell = make_cell(clip=1.0, write_heads=2)
    case = make_case(cell, 4, 2, masked=True)

    def penalty(unroll):
        inputs, state, active = case
        inputs = inputs.clone().requires_grad_()
        outputs, reads, _ = unroll(inputs, state, active)
        total = (outputs * active.unsqueeze(-1)).sin().sum() + reads.sin().sum()
        (slope,) = torch.autograd.grad(total, inputs, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [inputs, *cell.parameters()])

    one = penalty(cell.unroll)
    other = penalty(lambda *rest: by_steps(cell, *rest))
    assert max(distance(a, b) for a, b in zip(one, other, strict=True)) < 1e-10


def count_nodes(tensor):
    """How many nodes the graph behind a tensor has."""
    seen, todo = set(), [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
    return len(seen)


def test_a_window_is_one_node(engine):
    """The graph of a window is as large for 50 steps as for one, and its backward frees it."""
    model = NTM(INPUT, 2, memory=(7, 5), hidden_size=6)
    nodes = set()
    for steps in (1, 50):
        y, _ = model(torch.randn(steps, 2, INPUT))
        nodes.add(count_nodes(y))
    assert len(nodes) == 1
    assert max(nodes) < 20
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


def test_a_kept_graph_gives_the_same_derivative_again(engine):
    """With retain_graph, a second backward finds the tape as the first did."""
    cell = make_cell(write_heads=2)
    inputs, state, _ = make_case(cell, 5, 3)
    outputs, _, _ = cell.unroll(inputs, state)
    parameters = list(cell.parameters())
    first = torch.autograd.grad(outputs.sum(), parameters, retain_graph=True)
    second = torch.autograd.grad(outputs.sum(), parameters)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_a_window_returned_may_not_be_overwritten(engine):
    """torch's check of versions guards what a window saved."""
    cell = make_cell()
    inputs, state, _ = make_case(cell, 5, 3)
    outputs, _, _ = cell.unroll(inputs, state)
    loss = outputs.sum()
    outputs.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_only_what_is_asked_for_is_differentiated(engine):
    """Frozen parameters and plain inputs get no gradient, and nothing is kept without a graph."""
    cell = make_cell()
    cell.heads.requires_grad_(False)
    inputs, state, _ = make_case(cell, 5, 3)
    outputs, _, after = cell.unroll(inputs, state)
    outputs.sum().backward()
    assert cell.heads.weight.grad is None
    assert cell.controller.weight.grad is not None
    with torch.no_grad():
        again, _, last = cell.unroll(inputs, state)
    assert not again.requires_grad
    assert torch.equal(again, outputs)
    for one, other in zip(leaves(after), leaves(last), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["inputs", "memory", "weightings", "bias"])
def test_what_is_not_finite_goes_where_it_goes_in_the_steps(engine, bad, place):
    """NaN and infinities come out where they do from the cell's steps, in that sample alone."""
    cell = make_cell(torch.float32, write_heads=2)
    inputs, state, _ = make_case(cell, 4, 3)
    if place == "bias":
        with torch.no_grad():
            cell.heads.bias[cell.width] = bad
    else:
        {"inputs": inputs[1], "memory": state.memory, "weightings": state.weightings}[place][1] = (
            bad
        )
    with torch.no_grad():
        ours, theirs = cell.unroll(inputs, state), by_steps(cell, inputs, state)
    for one, other in zip(leaves(ours), leaves(theirs), strict=True):
        assert torch.equal(one.isnan(), other.isnan())
        assert torch.allclose(one.nan_to_num(), other.nan_to_num(), atol=1e-4)
    if place != "bias":
        assert ours[0][:, [0, 2]].isfinite().all()


def test_samples_that_have_ended_hide_nothing_bad(engine):
    """What is not finite in a sample that is not active reaches neither results nor gradients."""
    cell = make_cell()
    inputs, state, _ = make_case(cell, 4, 2)
    inputs[2:, 1] = 0
    active = torch.ones(4, 2, dtype=torch.bool)
    active[2:, 1] = False
    assert max(compare(cell, (inputs, state, active))) < 1e-10


def test_autocast_leaves_the_window_in_float32(engine):
    """Under autocast all of a window is computed in float32, and so is its way back."""
    cell = make_cell(torch.float32)
    inputs, state, _ = make_case(cell, 4, 2)
    plain, _, _ = cell.unroll(inputs, state)
    wanted = torch.autograd.grad(plain.sum(), list(cell.parameters()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, _, after = cell.unroll(inputs.bfloat16().float(), state)
        assert outputs.dtype is after.memory.dtype is torch.float32
        outputs, _, _ = cell.unroll(inputs, state)
        found = torch.autograd.grad(outputs.sum(), list(cell.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_threads_change_nothing(built):
    """Large windows are shared among threads, to the same bits."""
    cell = make_cell(torch.float32, memory=(1024, 64), hidden_size=256, scale=1.0)
    case = make_case(cell, 3, 16)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = derivatives(cell, cell.unroll, case)
        torch.set_num_threads(2)
        two = derivatives(cell, cell.unroll, case)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(one[0] + list(one[1])[:6], two[0] + list(two[1])[:6], strict=True):
        assert torch.equal(a, b)


def test_two_threads_step_at_once(engine):
    """Calls from several threads do not meet."""
    cells = [make_cell(write_heads=2), make_cell(controller="feedforward")]
    cases = [make_case(cell, 20, 3) for cell in cells]
    wanted = [derivatives(cell, cell.unroll, case) for cell, case in zip(cells, cases, strict=True)]
    failures = []

    def work(place):
        for _ in range(10):
            found = derivatives(cells[place], cells[place].unroll, cases[place])
            for one, other in zip(found, wanted[place], strict=True):
                if not all(torch.equal(a, b) for a, b in zip(one, other, strict=True)):
                    failures.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def refuse(*_):
    """Stands for the one-node way where it must not be taken."""
    raise AssertionError("the window was taken as one node")


class Halved(nn.Module):
    """A parametrisation."""

    def forward(self, weight):
        """Half the weight."""
        return weight / 2


def hooked(cell):
    """The cell with a hook on its heads."""
    cell.heads.register_forward_hook(lambda module, given, output: 2 * output)
    return cell


def parametrized(cell):
    """The cell with heads whose weight is computed."""
    nn.utils.parametrize.register_parametrization(cell.heads, "weight", Halved())
    return cell


def replaced(cell):
    """The cell with a forward of its own for one module."""
    forward = cell.heads.forward
    cell.heads.forward = lambda x: 2 * forward(x)
    return cell


@pytest.mark.parametrize("change", [hooked, parametrized, replaced])
def test_changed_modules_go_step_by_step(change, monkeypatch):
    """What a user has hung on the cell's modules is not passed over."""
    cell = change(make_cell())
    case = make_case(cell, 3, 2)
    monkeypatch.setattr(function, "run", refuse)
    assert max(compare(cell, case)) == 0


def test_other_controllers_go_step_by_step_and_say_so_once(monkeypatch, caplog):
    """A controller without a written derivative is stepped, and one line says so."""
    choice._tell_once.cache_clear()
    monkeypatch.setattr(function, "run", refuse)
    with caplog.at_level(logging.INFO, "onegraph.ntm"):
        for _ in range(2):
            cell = make_cell(controller="gru")
            cell.unroll(*make_case(cell, 3, 2))
    assert [record.message for record in caplog.records if "GRUController" in record.message] == [
        "GRUController: no derivative is written out for this controller, or it is hooked or "
        "changed; its windows go step by step, several times as slowly"
    ]


# torch's own forward-mode derivatives use its deprecated scripting.
@pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning")
def test_transforms_of_functions_go_step_by_step(monkeypatch):
    """torch.func's transforms and forward-mode differentiation see each operator."""
    monkeypatch.setattr(function, "run", refuse)
    cell = make_cell()
    inputs, state, _ = make_case(cell, 3, 2)

    def total(x):
        return cell.unroll(x, state)[0].sum()

    slope = torch.func.grad(total)(inputs)
    _, along = torch.func.jvp(total, (inputs,), (torch.ones_like(inputs),))
    assert torch.allclose(slope.sum(), along)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(inputs, torch.ones_like(inputs))
        assert torch.autograd.forward_ad.unpack_dual(total(dual)).tangent is not None


def test_other_types_go_step_by_step(monkeypatch):
    """A cell of bfloat16 works as it did, its memory in float32."""
    monkeypatch.setattr(function, "run", refuse)
    cell = NTMCell(INPUT, memory=(7, 5), hidden_size=6).bfloat16()
    outputs, _, after = cell.unroll(
        torch.randn(3, 2, INPUT, dtype=torch.bfloat16), cell.initial_state(2)
    )
    assert outputs.dtype is torch.bfloat16
    assert after.memory.dtype is torch.float32


def test_step_functions_compile():
    """What runs compiled on an accelerator gives the same there as it does uncompiled."""
    from onegraph.ntm.window import steps

    cell = make_cell(write_heads=2)
    inputs, state, _ = make_case(cell, 1, 2)
    width = inputs.shape[2]
    weights = steps.Weights(
        cell.controller.weight[:, width:].detach(),
        cell.heads.weight.detach(),
        cell.heads.bias.detach(),
    )
    sums = nn.functional.linear(
        inputs[0], cell.controller.weight[:, :width], cell.controller.bias
    ).detach()
    plan = steps.Plan(True, 1, 2, None, True)
    carried = steps.Carried(*state[:3], *state.controller)
    plain = steps.forward_step(plan, sums, weights, carried)
    compiled = torch.compile(steps.forward_step, backend="aot_eager")(plan, sums, weights, carried)
    derivative = steps.Carried(*(torch.ones_like(each) for each in carried))
    back = steps.backward_step(plan, plain[2], weights, None, derivative)
    back_compiled = torch.compile(steps.backward_step, backend="aot_eager")(
        plan, plain[2], weights, None, derivative
    )
    for one, other in ((plain, compiled), (back, back_compiled)):
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert torch.allclose(a, b, atol=1e-12)
