"""The layer: chunks, batches, padding and masks change nothing that they should not."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from onegraph.ntm import NTM
from onegraph.ntm.controllers import CONTROLLERS, map_nest

DRAWS = settings(max_examples=50, deadline=None, derandomize=True)


def make_model(**options):
    """A small model of float64 whose parameters are the same at every call."""
    torch.manual_seed(0)
    return NTM(3, 2, **{"memory": (6, 4), "hidden_size": 5, **options}).double()


def make_input(steps, batch, size=3):
    """Inputs (steps, batch, size) of float64."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(steps, batch, size, generator=generator, dtype=torch.float64)


def assert_same(one, other):
    """Two nests hold close tensors."""
    map_nest(lambda a, b: torch.testing.assert_close(a, b) or a, one, other)


def select(state, samples):
    """The state of some samples."""
    return map_nest(lambda each: each[samples], state)


def test_importing_needs_torch_alone():
    """`import onegraph.ntm` loads nothing that only training, plotting or a diagnosis needs."""
    program = (
        "import sys, onegraph.ntm; print(*(name for name in sys.modules if name.split('.')[0] in "
        "('accelerate', 'matplotlib', 'tensorboard', 'safetensors', 'rich') "
        "or name.startswith(('onegraph.recorder', 'onegraph.diagnosis', 'onegraph.render'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


OPTIONS = st.fixed_dictionaries(
    {
        "controller": st.sampled_from(sorted(CONTROLLERS)),
        "memory": st.tuples(st.integers(1, 7), st.integers(1, 4)),
        "read_heads": st.integers(1, 3),
        "write_heads": st.integers(1, 3),
        "shift_range": st.integers(0, 9),
        "memory_init": st.sampled_from(["constant", "learned", "random"]),
    }
)


@DRAWS
@given(OPTIONS, st.integers(1, 7), st.integers(1, 4), st.data())
def test_chunks_change_nothing(options, steps, batch, data):
    """One call of T steps equals any split of it, in outputs, state and gradients."""
    model = make_model(**options)
    x = make_input(steps, batch)
    whole, last = model(x)
    assert whole.shape == (steps, batch, 2)
    cuts = sorted(data.draw(st.sets(st.integers(0, steps), max_size=3)))
    state, parts = None, []
    for begin, end in zip([0, *cuts], [*cuts, steps], strict=True):
        part, state = model(x[begin:end], state)
        parts.append(part)
    assert_same(torch.cat(parts), whole)
    assert_same(state, last)
    parameters = list(model.parameters())
    one = torch.autograd.grad(whole.square().sum(), parameters, materialize_grads=True)
    split = torch.cat(parts).square().sum()
    assert_same(torch.autograd.grad(split, parameters, materialize_grads=True), one)


@DRAWS
@given(OPTIONS, st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_permuting_the_batch_permutes_the_outputs(options, steps, batch, random):
    """No sample sees another."""
    model = make_model(**options)
    x = make_input(steps, batch)
    order = list(range(batch))
    random.shuffle(order)
    y, state = model(x)
    moved, moved_state = model(x[:, order])
    assert_same(moved, y[:, order])
    assert_same(moved_state, select(state, order))


@DRAWS
@given(OPTIONS, st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_padding_changes_nothing(options, lengths):
    """A padded sample ends as it does alone, its outputs are zero after its end, whatever pads."""
    model = make_model(**options)
    x = make_input(6, len(lengths))
    padded = x.clone()
    for sample, length in enumerate(lengths):
        padded[length:, sample] = float("nan")
    y, state = model(padded, lengths=lengths)
    y.square().sum().backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())
    for sample, length in enumerate(lengths):
        alone, alone_state = model(x[:length, sample : sample + 1])
        assert_same(y[:length, sample : sample + 1], alone)
        assert (y[length:, sample] == 0).all()
        assert_same(select(state, [sample]), alone_state)


def test_a_mask_with_gaps():
    """Steps that a mask leaves out, anywhere, are as if they were not there."""
    model = make_model()
    x = make_input(6, 2)
    mask = torch.tensor([[1, 1], [0, 1], [1, 1], [0, 0], [1, 0], [1, 1]])
    y, state = model(x, mask=mask)
    for sample in range(2):
        kept = mask[:, sample].bool()
        alone, alone_state = model(x[kept, sample : sample + 1])
        assert_same(y[kept, sample : sample + 1], alone)
        assert (y[~kept, sample] == 0).all()
        assert_same(select(state, [sample]), alone_state)


def test_a_frozen_sample_keeps_its_gradient():
    """The gradient of a padded batch to its inputs is that of the samples alone, and 0 after."""
    model = make_model()
    x = make_input(5, 2).requires_grad_()
    lengths = [3, 5]
    y, _ = model(x, lengths=torch.tensor(lengths))
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    for sample, length in enumerate(lengths):
        alone = x.detach()[:length, sample : sample + 1].requires_grad_()
        y, _ = model(alone)
        (expected,) = torch.autograd.grad(y.square().sum(), alone)
        assert_same(gradient[:length, sample : sample + 1], expected)
        assert (gradient[length:, sample] == 0).all()


def test_batch_first():
    """With batch_first inputs, masks and outputs are (batch, time, ...), the state is as ever."""
    model, flipped = make_model(), make_model(batch_first=True)
    x = make_input(4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    y, state = model(x, mask=mask.T)
    flipped_y, flipped_state = flipped(x.transpose(0, 1), mask=mask)
    assert_same(flipped_y, y.transpose(0, 1))
    assert_same(flipped_state, state)


def test_no_steps():
    """A window of no steps gives no outputs and leaves the state."""
    model = make_model()
    _, state = model(make_input(2, 3))
    y, after = model(make_input(0, 3), state)
    assert y.shape == (0, 3, 2)
    assert after is state


def test_derivatives_of_a_window():
    """Gradients through four steps of a padded batch are right in float64."""
    model = make_model(read_heads=2)
    x = make_input(4, 2).requires_grad_()

    def run(x):
        y, state = model(x, lengths=[2, 4])
        return y, state.memory, state.reads

    assert gradcheck(run, (x,))


def test_every_parameter_is_trained():
    """One backward through a window reaches every parameter, with nothing retained."""
    model = make_model(memory_init="learned", weighting_init="learned", read_init="learned")
    y, _ = model(make_input(4, 2))
    y.square().sum().backward()
    assert [name for name, each in model.named_parameters() if each.grad is None] == []


def test_windows_train_when_the_state_is_cut():
    """A state that is detached between windows never meets a freed graph."""
    model = make_model()
    state = None
    for _ in range(3):
        y, state = model(make_input(4, 2), state)
        y.square().sum().backward()
        state = map_nest(torch.Tensor.detach, state)
    assert not state.memory.requires_grad


def test_the_graph_of_a_window_does_not_grow():
    """With the state cut, each window's graph has as many nodes as the one before it."""
    model = make_model()
    state = model.initial_state(2)
    counts = []
    for _ in range(3):
        state = map_nest(torch.Tensor.detach, state)
        y, state = model(make_input(3, 2), state)
        seen, stack = set(), [y.grad_fn]
        while stack:
            node = stack.pop()
            if node is not None and node not in seen:
                seen.add(node)
                stack.extend(parent for parent, _ in node.next_functions)
        counts.append(len(seen))
    assert len(set(counts)) == 1


def test_copies_are_bit_equal_and_runs_repeat():
    """Deep copies, pickles, loaded state_dicts and second runs give bit-equal results."""
    model = make_model()
    loaded = NTM(3, 2, (6, 4), hidden_size=5).double()
    loaded.load_state_dict(model.state_dict())
    x = make_input(5, 3)
    expected, _ = model(x)
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        assert torch.equal(twin(x)[0], expected)


def test_train_and_eval_are_the_same():
    """There is no randomness in either."""
    model = make_model()
    x = make_input(3, 2)
    assert torch.equal(model.train()(x)[0], model.eval()(x)[0])


def test_moving_the_model_moves_its_states():
    """After .to() the initial state is of the new type and place."""
    model = make_model(memory_init="random").to(torch.float32)
    y, state = model(make_input(2, 2).float())
    assert {y.dtype, state.memory.dtype, state.weightings.dtype} == {torch.float32}
    assert model.to("meta").initial_state(2).memory.device.type == "meta"


def test_autocast():
    """Under autocast a window runs and trains, its state in float32."""
    model = make_model().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = model(make_input(4, 2).float(), lengths=[4, 2])
    y.float().sum().backward()
    assert {each.dtype for each in state[:3]} == {torch.float32}
    assert all(each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda model, x: model(x[0]),
            "x is (2, 3); this NTM takes (time, batch, 3)",
        ),
        (
            lambda model, x: model(x, lengths=[1, 2], mask=torch.ones(4, 2)),
            "give lengths or a mask, not both",
        ),
        (
            lambda model, x: model(x, lengths=[1, 2, 3]),
            "lengths has (3,); x has a batch of 2",
        ),
        (
            lambda model, x: model(x, lengths=[1, 9]),
            "lengths must lie between 0 and the 4 steps of x: [1, 9]",
        ),
        (
            lambda model, x: model(x, mask=torch.ones(2, 4)),
            "the mask is (2, 4); x is (4, 2, 3)",
        ),
        (
            lambda model, x: model(x, model.initial_state(3)),
            "the state's memory is (3, 6, 4); this call needs (2, 6, 4)",
        ),
    ],
)
def test_wrong_use_is_told(call, message):
    """Each wrong use is refused with what was given and what is needed."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(make_model(), make_input(4, 2))


@pytest.mark.parametrize("controller", ["lstm", "gru", "feedforward"])
def test_a_batch_of_none(controller):
    """An empty batch goes through, forward and back."""
    model = NTM(3, 2, memory=(6, 4), hidden_size=5, controller=controller)
    y, state = model(torch.randn(4, 0, 3))
    y.sum().backward()
    assert y.shape == (4, 0, 2)
    assert state.memory.shape == (0, 6, 4)


@pytest.mark.parametrize("controller", ["lstm", "gru", "feedforward"])
def test_bits_may_be_whole_numbers_or_truths(controller):
    """Inputs of whole numbers or truths count as the same numbers of the parameters' type."""
    model = NTM(3, 2, memory=(6, 4), hidden_size=5, controller=controller)
    x = torch.rand(4, 2, 3).round()
    y, _ = model(x)
    assert torch.equal(model(x.long())[0], y)
    assert torch.equal(model(x.bool())[0], y)
    with pytest.raises(ValueError, match=r"x is of torch\.float64; this cell's parameters are of"):
        model(x.double())
