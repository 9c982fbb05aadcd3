"""Each equation of addressing, against the paper's own formula, and at its extremes."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from onegraph.ntm import addressing
from onegraph.ntm.addressing import HeadParams

DRAWS = settings(max_examples=50, deadline=None, derandomize=True)
SIZES = {
    "batch": st.integers(1, 3),
    "heads": st.integers(1, 4),
    "slots": st.integers(1, 9),
    "width": st.integers(1, 5),
}


def drawn(*size, seed=0):
    """Normal numbers of float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def weighting(*size, seed=0):
    """Weightings of float64 that sum to 1."""
    return drawn(*size, seed=seed).softmax(-1)


def head_params(batch, heads, write_heads, width, shifts, seed=0):
    """Activated parameters made from normal numbers."""
    count = addressing.count_head_outputs(heads, write_heads, width, shifts)
    raw = drawn(batch, count, seed=seed)
    return addressing.activate(raw, heads, write_heads, width, clip=None, tanh=True)


@DRAWS
@given(**SIZES)
def test_content_is_the_softmax_of_cosines(batch, heads, slots, width):
    """Equations 5 and 6 hold with the small number inside both roots."""
    memory, key = drawn(batch, slots, width), drawn(batch, heads, width, seed=1)
    strength = drawn(batch, heads, 1, seed=2).exp()
    found = addressing.content(memory, key, strength)
    rows, keys = memory.unsqueeze(1), key.unsqueeze(2)
    lengths = [(each.square().sum(-1) + addressing.COSINE_EPSILON).sqrt() for each in (rows, keys)]
    cosines = (rows * keys).sum(-1) / (lengths[0] * lengths[1])
    torch.testing.assert_close(found, (strength * cosines).softmax(-1))


def test_a_blank_row_matches_nothing():
    """Against a row of 1e-6 the cosine of any key is below 0.05, and its gradient is moderate."""
    memory = torch.full((1, 1, 20), 1e-6, requires_grad=True)
    other = torch.ones(1, 1, 20)
    key, strength = torch.ones(1, 1, 20), torch.ones(1, 1, 1)
    found = addressing.content(torch.cat((memory, other), 1), key, strength)
    ratio = (found[0, 0, 1] / found[0, 0, 0]).log()
    assert 0.95 < ratio < 1
    (gradient,) = torch.autograd.grad(ratio, memory)
    assert gradient.abs().max() < 1e5


@DRAWS
@given(**SIZES, reach=st.integers(0, 20))
def test_shift_is_circular(batch, heads, slots, width, reach):
    """Equation 8 holds for any range, also one that goes round the memory more than once."""
    before = weighting(batch, heads, slots)
    taps = weighting(batch, heads, 2 * reach + 1, seed=1)
    expected = torch.zeros_like(before)
    for entry in range(2 * reach + 1):
        expected += taps[..., entry : entry + 1] * before.roll(reach - entry, -1)
    torch.testing.assert_close(addressing.shift(before, taps), expected)


def test_the_first_tap_moves_forward():
    """A head on slot 0 whose shift is all on the first entry goes to slot 1."""
    before = torch.tensor([[[1.0, 0, 0, 0]]])
    after = addressing.shift(before, torch.tensor([[[1.0, 0, 0]]]))
    assert after.tolist() == [[[0, 1, 0, 0]]]


@DRAWS
@given(**SIZES)
def test_sharpen_is_a_normalised_power(batch, heads, slots, width):
    """Equation 9 holds."""
    before, exponent = weighting(batch, heads, slots), 1 + drawn(batch, heads, 1, seed=1).exp()
    powers = before**exponent
    expected = powers / powers.sum(-1, keepdim=True)
    torch.testing.assert_close(addressing.sharpen(before, exponent), expected)


def test_sharpening_a_flat_weighting_keeps_it():
    """At γ = 60 a flat weighting over 128 slots stays flat in float32, where its powers are 0."""
    flat = torch.full((1, 1, 128), 1 / 128)
    assert (flat**60).sum() == 0
    after = addressing.sharpen(flat, torch.full((1, 1, 1), 60.0))
    torch.testing.assert_close(after, flat)


def test_sharpening_a_one_hot_weighting_has_finite_gradients():
    """Zeros in a weighting give no NaN, neither to it nor to γ."""
    before = torch.eye(8)[None, :1].requires_grad_()
    exponent = torch.full((1, 1, 1), 60.0, requires_grad=True)
    addressing.sharpen(before, exponent)[0, 0, 0].backward()
    assert before.grad.isfinite().all()
    assert exponent.grad.isfinite().all()


@DRAWS
@given(**SIZES, reach=st.integers(0, 4))
def test_weightings_stay_weightings(batch, heads, slots, width, reach):
    """After a step all weights are at least 0 and sum to 1, also in float32 from one-hot ones."""
    params = head_params(batch, heads, 1, width, reach)
    params = HeadParams(*(10 * part.float() for part in params))._replace(
        gate=params.gate.float(), shift=params.shift.float()
    )
    memory = drawn(batch, slots, width).float()
    before = torch.eye(slots)[:1].expand(batch, heads, slots)
    after = addressing.address(memory, before, params)
    assert (after >= 0).all()
    torch.testing.assert_close(after.sum(-1), torch.ones(batch, heads))


@DRAWS
@given(**SIZES)
def test_read_is_a_weighted_sum(batch, heads, slots, width):
    """Equation 2 holds."""
    memory, weights = drawn(batch, slots, width), weighting(batch, heads, slots)
    expected = (weights.unsqueeze(-1) * memory.unsqueeze(1)).sum(2)
    torch.testing.assert_close(addressing.read(memory, weights), expected)


@DRAWS
@given(**SIZES)
def test_write_erases_then_adds(batch, heads, slots, width):
    """Equations 3 and 4 hold for several heads: all erase, then all add."""
    memory, weights = drawn(batch, slots, width), weighting(batch, heads, slots)
    erase = drawn(batch, heads, width, seed=1).sigmoid()
    add = drawn(batch, heads, width, seed=2)
    expected = memory
    for head in range(heads):
        expected = expected * (1 - weights[:, head, :, None] * erase[:, head, None])
    for head in range(heads):
        expected = expected + weights[:, head, :, None] * add[:, head, None]
    before = memory.clone()
    torch.testing.assert_close(addressing.write(memory, weights, erase, add), expected)
    assert torch.equal(memory, before)


def test_the_order_of_writing_heads_does_not_matter():
    """Swapping two writing heads gives the same memory."""
    memory, weights = drawn(2, 5, 3), weighting(2, 2, 5)
    erase, add = drawn(2, 2, 3, seed=1).sigmoid(), drawn(2, 2, 3, seed=2)
    once = addressing.write(memory, weights, erase, add)
    swapped = addressing.write(memory, weights.flip(1), erase.flip(1), add.flip(1))
    torch.testing.assert_close(once, swapped)


@DRAWS
@given(heads=st.integers(1, 4), width=st.integers(1, 5), reach=st.integers(0, 3), data=st.data())
def test_activated_parameters_are_in_range(heads, width, reach, data):
    """Every head parameter has its shape and its range, whatever the controller emits."""
    write_heads = data.draw(st.integers(1, heads))
    count = addressing.count_head_outputs(heads, write_heads, width, reach)
    raw = 5 * drawn(2, count)
    params = addressing.activate(raw, heads, write_heads, width, clip=None, tanh=True)
    shapes = [tuple(part.shape) for part in params]
    single, written = (2, heads, 1), (2, write_heads, width)
    assert shapes == [
        (2, heads, width), single, single, (2, heads, 2 * reach + 1), single, written, written
    ]  # fmt: skip
    assert (params.strength > 0).all()
    assert (params.sharpen >= 1).all()
    for part in (params.gate, params.erase):
        assert ((part > 0) & (part < 1)).all()
    for part in (params.key, params.add):
        assert (part.abs() < 1).all()
    torch.testing.assert_close(params.shift.sum(-1), torch.ones(2, heads, dtype=raw.dtype))


def test_clip_and_tanh_are_options():
    """Clipping bounds what is read; without tanh keys and what is added are as emitted."""
    count = addressing.count_head_outputs(1, 1, 2, 1)
    raw = torch.full((1, count), 30.0)
    params = addressing.activate(raw, 1, 1, 2, clip=None, tanh=False)
    assert params.key.tolist() == [[[30, 30]]]
    assert params.add.tolist() == [[[30, 30]]]
    clipped = addressing.activate(raw, 1, 1, 2, clip=20, tanh=False)
    assert clipped.key.tolist() == [[[20, 20]]]
    assert clipped.sharpen.item() == 21


def test_derivatives_of_addressing():
    """First and second derivatives of addressing, reading and writing are right in float64."""
    params = head_params(2, 2, 1, 3, 1)
    inputs = [drawn(2, 5, 3), weighting(2, 2, 5), *params]
    for each in inputs:
        each.requires_grad_()

    def step(memory, before, *parts):
        params = HeadParams(*parts)
        after = addressing.address(memory, before, params)
        written = addressing.write(memory, after[:, 1:], params.erase, params.add)
        return addressing.read(memory, after[:, :1]), written, after

    assert gradcheck(step, inputs)
    assert gradgradcheck(step, inputs, fast_mode=True)


def test_addressing_is_exact_under_autocast():
    """A block made by exactly() computes in float32 whatever surrounds it."""
    a = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a.T).dtype == torch.bfloat16
        with addressing.exactly(a.device):
            assert (a @ a.T).dtype == torch.float32
