"""The cell: what a step is, its derivatives at the extremes, its states, its controllers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from onegraph.ntm import (
    Controller,
    NTMCell,
    NTMState,
    addressing,
    constant_memory,
    one_hot_weightings,
)
from onegraph.ntm.controllers import CONTROLLERS, map_nest

BATCH, INPUT, SLOTS, WIDTH = 2, 3, 5, 4


def make_cell(**options):
    """A small cell of float64 whose parameters are the same at every call."""
    torch.manual_seed(0)
    options = {"memory": (SLOTS, WIDTH), "hidden_size": 6, **options}
    return NTMCell(INPUT, **options).double()


def make_input(steps=1, batch=BATCH):
    """Inputs (steps, batch, INPUT) of float64."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(steps, batch, INPUT, generator=generator, dtype=torch.float64)


def make_state(cell, batch=BATCH, requires_grad=False):
    """A state in the middle of things: no entry is 0 and no weighting is flat."""
    generator = torch.Generator().manual_seed(2)

    def draw(like):
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    state = map_nest(draw, cell.initial_state(batch))
    state = state._replace(weightings=state.weightings.softmax(-1))
    return map_nest(lambda each: each.requires_grad_(requires_grad), state)


def leaves(nest):
    """The tensors of a nest, in order."""
    found = []
    map_nest(lambda each: found.append(each) or each, nest)
    return found


class Doubling(nn.Module):
    """A user's controller: it remembers the sum of what it saw in a dict."""

    output_size = 2 * (INPUT + WIDTH)

    def initial_state(self, batch, device, dtype):
        """Nothing seen."""
        return {"sum": torch.zeros(batch, INPUT + WIDTH, device=device, dtype=dtype), "more": None}

    def forward(self, x, state):
        """The input beside the sum."""
        total = state["sum"] + x
        return torch.cat((x, total), -1), {"sum": total, "more": None}


def test_a_step_addresses_then_reads_then_writes():
    """Heads are addressed on M(t-1), reads come from M(t-1), and then M(t) is written."""
    cell = make_cell(read_heads=2, write_heads=2)
    state, x = make_state(cell), make_input()[0]
    output, after = cell(x, state)
    controlled, inner = cell.controller(
        torch.cat((x, state.reads.flatten(1)), -1), state.controller
    )
    params = addressing.activate(cell.heads(controlled), 4, 2, WIDTH, clip=None, tanh=True)
    weightings = addressing.address(state.memory, state.weightings, params)
    reads = addressing.read(state.memory, weightings[:, :2])
    memory = addressing.write(state.memory, weightings[:, 2:], params.erase, params.add)
    expected = NTMState(memory, weightings, reads, inner)
    for one, other in zip(leaves(after), leaves(expected), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(output, torch.cat((controlled, reads.flatten(1)), -1))
    assert output.shape == (BATCH, cell.output_size)


def test_the_cell_keeps_nothing():
    """Calls change no attribute, no buffer and no tensor that was passed in."""
    cell = make_cell()
    state = make_state(cell)
    before = [each.clone() for each in leaves(state)]
    attributes = {name: id(value) for name, value in vars(cell).items()}
    cell(make_input()[0], state)
    assert {name: id(value) for name, value in vars(cell).items()} == attributes
    assert list(cell.buffers()) == []
    for one, other in zip(leaves(state), before, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize(("read_heads", "write_heads", "reach"), [(1, 1, 1), (2, 3, 2)])
def test_derivatives(controller, read_heads, write_heads, reach):
    """First and second derivatives of a step are right, to its input, state and parameters."""
    cell = make_cell(
        controller=controller, read_heads=read_heads, write_heads=write_heads, shift_range=reach
    )
    check_derivatives(cell, make_state(cell, requires_grad=True))


def check_derivatives(cell, state):
    """Check them at an input, a state and the cell's parameters, all at once."""
    names = [name for name, _ in cell.named_parameters()]
    inputs = [make_input()[0].requires_grad_(), *leaves(state)]
    count = len(inputs)
    inputs += [each.detach().requires_grad_() for each in cell.parameters()]

    def step(x, *rest):
        parts = iter(rest[: count - 1])
        given = map_nest(lambda _: next(parts), state)
        parameters = dict(zip(names, rest[count - 1 :], strict=True))
        output, after = torch.func.functional_call(cell, parameters, (x, given))
        return output, *leaves(after)

    assert gradcheck(step, inputs)
    assert gradgradcheck(step, inputs, fast_mode=True)


def lead_heads(cell, **values):
    """Set the bias of every head's strength, sharpen or gate, so that they come to extremes."""
    place = {"strength": WIDTH, "sharpen": WIDTH + 1, "gate": WIDTH + 2}
    heads = cell.read_heads + cell.write_heads
    row = WIDTH + 4 + 2 * cell.shift_range
    with torch.no_grad():
        for name, value in values.items():
            cell.heads.bias[place[name] : heads * row : row] = value


@pytest.mark.parametrize(
    "extreme",
    [
        "one-hot weightings",
        "zero memory",
        "γ = 60",
        "γ = 60 at one-hot weightings",
        "β = 1000",
        "the gate closed",
    ],
)
def test_derivatives_at_extremes(extreme):
    """Where other implementations give NaN, derivatives are finite and right."""
    cell = make_cell()
    state = make_state(cell)
    if "one-hot" in extreme:
        state = state._replace(weightings=one_hot_weightings(BATCH, 2, SLOTS, dtype=torch.float64))
    if extreme == "zero memory":
        state = state._replace(memory=torch.zeros_like(state.memory))
    lead_heads(
        cell,
        **({"sharpen": 59.0} if "γ" in extreme else {}),
        **({"strength": 1000.0} if "β" in extreme else {}),
        **({"gate": -700.0} if "gate" in extreme else {}),
    )
    map_nest(lambda each: each.requires_grad_(), state)
    check_derivatives(cell, state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_every_extreme_at_once(dtype):
    """Zero memory, one-hot weightings, γ = 60, β = 1e4 and either gate: no gradient is NaN."""
    cell = make_cell().to(dtype)
    for gate in (-200.0, 200.0):
        lead_heads(cell, sharpen=59.0, strength=1e4, gate=gate)
        state = cell.initial_state(BATCH)
        state = state._replace(memory=torch.zeros_like(state.memory))
        map_nest(lambda each: each.requires_grad_(), state)
        output = None
        after = state
        for x in make_input(4).to(dtype):
            output, after = cell(x, after)
        (output.sum() + after.memory.square().sum()).backward()
        for each in [*cell.parameters(), *leaves(state)]:
            assert each.grad is None or each.grad.isfinite().all()
        assert state.memory.grad is not None


def test_initial_state_by_default():
    """The memory is constant, every head is on the first slot, nothing was read."""
    cell = make_cell(read_heads=2)
    state = cell.initial_state(3)
    expected = NTMState(
        constant_memory(3, SLOTS, WIDTH, dtype=torch.float64),
        one_hot_weightings(3, 3, SLOTS, dtype=torch.float64),
        torch.zeros(3, 2, WIDTH, dtype=torch.float64),
        cell.controller.initial_state(3, torch.device("cpu"), torch.float64),
    )
    for one, other in zip(leaves(state), leaves(expected), strict=True):
        assert torch.equal(one, other)
    assert state.memory.unique().tolist() == [1e-6]


def test_rows_of_a_constant_memory_come_apart():
    """From the default initial state rows of the memory differ after one step."""
    cell = make_cell()
    _, state = cell(make_input()[0])
    assert (state.memory[0, 0] != state.memory[0, 2]).all()


def test_learned_initial_states_are_trained():
    """Learned memory, weightings and reads are parameters, and each gets a gradient."""
    cell = make_cell(memory_init="learned", weighting_init="learned", read_init="learned")
    output, state = cell(make_input()[0])
    output, _ = cell(make_input()[0], state)
    output.square().sum().backward()
    for name in ("initial_memory", "initial_weightings", "initial_reads"):
        parameter = getattr(cell, name)
        assert isinstance(parameter, nn.Parameter)
        assert parameter.grad.abs().sum() > 0
    weightings = cell.initial_state(1).weightings
    torch.testing.assert_close(weightings[..., 0], torch.full_like(weightings[..., 0], 0.9))


def test_a_random_memory_is_kept_with_the_model():
    """It is the same at every call, is no parameter, and comes back with the state_dict."""
    cell, other = make_cell(memory_init="random"), NTMCell(
        INPUT, (SLOTS, WIDTH), hidden_size=6, memory_init="random"
    ).double()  # fmt: skip
    assert "initial_memory" not in dict(cell.named_parameters())
    assert torch.equal(cell.initial_state(2).memory[0], cell.initial_state(2).memory[1])
    assert not torch.equal(cell.initial_memory, other.initial_memory)
    other.load_state_dict(cell.state_dict())
    assert torch.equal(cell.initial_memory, other.initial_memory)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_initial_state_takes_device_and_dtype(dtype):
    """All its tensors are where and what was asked for."""
    state = make_cell().initial_state(2, device="meta", dtype=dtype)
    assert {(each.device.type, each.dtype) for each in leaves(state)} == {("meta", dtype)}


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_narrow_model_keeps_a_float32_state(controller):
    """In bfloat16 the memory and the weightings stay float32, and a step works."""
    cell = make_cell(controller=controller).bfloat16()
    state = cell.initial_state(BATCH)
    assert state.memory.dtype == torch.float32
    output, after = cell(make_input()[0].bfloat16(), state)
    assert after.memory.dtype == torch.float32
    assert output.dtype == torch.bfloat16
    cell(make_input()[0].bfloat16(), after)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_autocast_leaves_addressing_in_float32(controller):
    """Under autocast the state stays float32 and near what it is without, and gradients flow."""
    cell = make_cell(controller=controller).float()
    inputs = make_input(4).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = None
        for x in inputs:
            output, state = cell(x, state)
    output.float().sum().backward()
    exact = None
    for x in inputs:
        _, exact = cell(x, exact)
    assert {each.dtype for each in leaves(state)} <= {torch.float32, output.dtype}
    assert {each.dtype for each in state[:3]} == {torch.float32}
    torch.testing.assert_close(state.weightings, exact.weightings, atol=0.02, rtol=0.05)
    torch.testing.assert_close(state.weightings.sum(-1), torch.ones(BATCH, 2))


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_copies_and_pickles_and_state_dicts(controller):
    """A deep copy, a pickled one and one that loads the state_dict give bit-equal results."""
    cell = make_cell(controller=controller, memory_init="learned", read_init="learned")
    loaded = NTMCell(
        INPUT, (SLOTS, WIDTH), controller, 6, memory_init="learned", read_init="learned"
    ).double()
    loaded.load_state_dict(cell.state_dict())
    x = make_input()[0]
    expected, state = cell(x)
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell)), loaded):
        output, after = twin(x)
        assert torch.equal(output, expected)
        assert torch.equal(after.memory, state.memory)
    assert isinstance(pickle.loads(pickle.dumps(map_nest(torch.Tensor.detach, state))), NTMState)


def test_a_users_controller():
    """Any module with the documented protocol steers the heads, and its state is carried."""
    cell = make_cell(controller=Doubling())
    assert isinstance(cell.controller, Controller)
    inputs = make_input(3)
    state = None
    for x in inputs:
        output, state = cell(x, state)
    assert output.shape == (BATCH, Doubling.output_size + WIDTH)
    torch.testing.assert_close(state.controller["sum"][:, :INPUT], inputs.sum(0))
    check_derivatives(cell, make_state(cell, requires_grad=True))


def test_gru_is_the_one_of_torch():
    """The GRU controller computes what torch.nn.GRUCell computes with its parameters."""
    cell = make_cell(controller="gru")
    twin = nn.GRUCell(INPUT + WIDTH, 6).double()
    twin.load_state_dict(cell.controller.state_dict())
    x, state = torch.randn(2, BATCH, INPUT + WIDTH, dtype=torch.float64)[0], make_state(cell)
    output, _ = cell.controller(x, state.controller)
    torch.testing.assert_close(output, twin(x, state.controller))


def test_lstm_is_the_one_of_torch():
    """The LSTM controller computes what torch.nn.LSTMCell computes with its parameters."""
    cell = make_cell()
    twin = nn.LSTMCell(INPUT + WIDTH, 6).double()
    # torch has the candidate before the output gate.
    order = torch.arange(24).view(4, 6)[[0, 1, 3, 2]].flatten()
    with torch.no_grad():
        weight = cell.controller.weight[order]
        twin.weight_ih.copy_(weight[:, : INPUT + WIDTH])
        twin.weight_hh.copy_(weight[:, INPUT + WIDTH :])
        twin.bias_ih.copy_(cell.controller.bias[order])
        twin.bias_hh.zero_()
    x, state = torch.randn(BATCH, INPUT + WIDTH, dtype=torch.float64), make_state(cell)
    output, inner = cell.controller(x, state.controller)
    torch.testing.assert_close(inner, twin(x, state.controller))
    assert output is inner[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: NTMCell(3, controller="rnn"),
            ValueError,
            "unknown controller 'rnn'; known are 'lstm', 'gru', 'feedforward', or a module",
        ),
        (
            lambda: NTMCell(3, controller=nn.Linear(3, 3)),
            TypeError,
            "Linear cannot steer an NTM: it has no output_size and no initial_state "
            "(see onegraph.ntm.Controller)",
        ),
        (
            lambda: NTMCell(3, memory_init="zero"),
            ValueError,
            "memory_init is 'zero'; it must be one of constant, learned, random",
        ),
        (
            lambda: NTMCell(3, weighting_init="uniform"),
            ValueError,
            "weighting_init is 'uniform'; it must be one of one-hot, learned",
        ),
        (
            lambda: NTMCell(3, write_heads=0),
            ValueError,
            "write_heads is 0; it must be at least 1",
        ),
        (
            lambda: NTMCell(3, shift_range=-1),
            ValueError,
            "shift_range is -1; it must be at least 0",
        ),
        (
            lambda: NTMCell(3, hidden_size=0),
            ValueError,
            "hidden_size is 0; it must be at least 1",
        ),
        *(
            (
                lambda clip=clip: NTMCell(3, clip=clip),
                ValueError,
                f"clip is {clip}; it must be positive and finite, or None",
            )
            for clip in (0, -1.0, float("nan"), float("inf"))
        ),
        (
            lambda: make_cell()(torch.zeros(2, 7)),
            ValueError,
            "x is (2, 7); this cell takes (batch, 3)",
        ),
        (
            lambda: make_cell()(make_input()[0], make_cell().initial_state(5)),
            ValueError,
            "the state's memory is (5, 5, 4); this call needs (2, 5, 4)",
        ),
    ],
)
def test_wrong_use_is_told(make, error, message):
    """Each wrong use is refused with what was given and what is needed."""
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == message
