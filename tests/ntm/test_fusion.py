"""Fused attention maps: any of them missing, any size, position kept; and the controller on top."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.ntm import AttentionFusion, NTMController

DRAWS = settings(max_examples=15, deadline=None, derandomize=True)
FIELDS = ("read_key", "write_key", "erase", "add", "read_strength", "write_strength")


def make_fusion(**options):
    """A small fusion of two sources whose parameters are the same at every call."""
    torch.manual_seed(0)
    fusion = AttentionFusion({"a": 2, "b": 3}, 4, 6, grid=8, pool=2, **options)
    with torch.no_grad():
        fusion.absent.normal_()
        fusion.block.conv2.weight.normal_(std=0.1)
    return fusion.double()


def make_controller(**options):
    """A small controller whose parameters are the same at every call."""
    torch.manual_seed(0)
    options = {"d_model": 10, "mem_dim": 6, "hidden_dim": 8, **options}
    return NTMController(fuse_in_channels=6, fuse_out_channels=4, **options).double()


def make_maps(*size, seed=1):
    """Maps that sum to 1 over their last two dimensions, in float64."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(*size, generator=generator, dtype=torch.float64)
    return scores.flatten(-2).softmax(-1).view(size)


def peak(row, column, height=14, width=14, channels=2):
    """A map whose whole mass is at one place, (1, channels, height, width)."""
    attention = torch.zeros(1, channels, height, width, dtype=torch.float64)
    attention[..., row, column] = 1
    return attention


def test_levelled_sources_count_alike():
    """How strong a map is against the other changes what is fused, unless they are levelled."""
    maps = {"a": make_maps(2, 2, 5, 5), "b": make_maps(2, 3, 7, 7, seed=2)}
    louder = {**maps, "a": 10 * maps["a"]}
    for level in (False, True):
        torch.manual_seed(0)
        fusion = AttentionFusion({"a": 2, "b": 3}, 4, 8, grid=8, pool=2, level=level).double()
        assert torch.allclose(fusion(maps), fusion(louder), atol=1e-2) == level
        assert fusion({**maps, "b": 0 * maps["b"]}).isfinite().all()


@DRAWS
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3))
def test_mass_is_kept_at_any_size(height, width, batch):
    """The mean over the grid is the sum over the map, smaller or larger, oblong or not."""
    maps = 3 * make_maps(batch, 2, height, width)
    placed = make_fusion().place(maps)
    assert placed.shape == (batch, 2, 8, 8)
    torch.testing.assert_close(placed.mean((-2, -1)), maps.sum((-2, -1)))


@pytest.mark.parametrize("size", [1, 3, 8, 14, 40])
def test_a_uniform_map_is_one_at_any_size(size):
    """The scale of a map does not depend on how many places it has."""
    uniform = torch.full((1, 2, size, size), 1 / size**2, dtype=torch.float64)
    placed = make_fusion().place(uniform)
    torch.testing.assert_close(placed, torch.ones_like(placed))


def test_scores_become_probabilities():
    """Scores are taken through a softmax over all places, so a constant added changes nothing."""
    fusion = make_fusion(kind="scores")
    scores = torch.randn(2, 2, 5, 7, dtype=torch.float64)
    placed = fusion.place(scores)
    torch.testing.assert_close(placed.mean((-2, -1)), torch.ones(2, 2, dtype=torch.float64))
    torch.testing.assert_close(fusion.place(scores + 100), placed)


def test_a_map_of_zeros_has_finite_gradients():
    """A map without mass gives zeros, and no NaN backward."""
    fusion = make_fusion()
    zeros = torch.zeros(1, 2, 14, 14, dtype=torch.float64, requires_grad=True)
    fusion({"a": zeros}).sum().backward()
    assert zeros.grad.isfinite().all()


@pytest.mark.parametrize("move", [(0, 1), (1, 0), (0, -5), (7, 7)])
def test_position_is_kept(move):
    """Moving the peak of a map, be it by one place, changes what is fused."""
    fusion = make_fusion()
    here = fusion({"a": peak(6, 6)})
    there = fusion({"a": peak(6 + move[0], 6 + move[1])})
    assert (here - there).abs().max() > 1e-2


@DRAWS
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_presence_may_be_mixed_within_a_batch(present, height, width):
    """Each sample is fused as it would be alone with the maps that it has, one, both or none."""
    fusion = make_fusion()
    batch = len(present)
    maps = {"a": make_maps(batch, 2, height, width), "b": make_maps(batch, 3, 9, 5, seed=2)}
    mask = {name: torch.tensor([each[at] for each in present]) for at, name in enumerate("ab")}
    fused = fusion(maps, mask)
    assert fused.shape == (batch, fusion.output_size)
    for sample in range(batch):
        own = {name: maps[name][sample : sample + 1] for name in "ab" if mask[name][sample]}
        torch.testing.assert_close(fused[sample : sample + 1], fusion(own, batch=1))


def test_absent_maps_are_not_looked_at():
    """What stands in place of an absent map, even NaN, reaches neither values nor gradients."""
    fusion = make_fusion()
    maps = make_maps(2, 2, 5, 5)
    present = torch.tensor([True, False])
    expected = fusion({"a": maps}, {"a": present})
    maps[1] = float("nan")
    fused = fusion({"a": maps}, {"a": present})
    assert torch.equal(fused, expected)
    fused.sum().backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in fusion.parameters())


def test_without_maps_a_learned_vector_stands_in():
    """No map at all gives the learned vector for every sample, and trains it."""
    fusion = make_fusion()
    fused = fusion({"a": None}, batch=3)
    assert torch.equal(fused, fusion.absent.expand(3, -1))
    fused.sum().backward()
    assert (fusion.absent.grad == 3).all()


def test_maps_a_step_are_fused_as_one_by_one():
    """Time folded into the batch equals a call a step, and a static map is shared by all steps."""
    fusion = make_fusion()
    changing, static = make_maps(4, 2, 2, 5, 5), make_maps(2, 3, 6, 6)
    present = torch.tensor([[1, 1], [0, 1], [1, 0], [0, 0]]).bool()
    fused = fusion({"a": changing, "b": static}, {"a": present})
    assert fused.shape == (4, 2, fusion.output_size)
    for t in range(4):
        alone = fusion({"a": changing[t], "b": static}, {"a": present[t]})
        torch.testing.assert_close(fused[t], alone)


def test_presence_a_step_of_a_static_map():
    """A static map may come and go: presence a step gives an output a step."""
    fusion = make_fusion()
    static = make_maps(2, 2, 5, 5)
    fused = fusion({"a": static}, {"a": torch.tensor([[True, True], [False, True]])})
    assert torch.equal(fused[1, 0], fusion.absent)
    torch.testing.assert_close(fused[0], fusion({"a": static}))


def test_no_sample_and_no_step_sees_another():
    """A batch of one trains, and a sample's fusion does not depend on its batch."""
    fusion = make_fusion()
    maps = make_maps(3, 2, 5, 5)
    torch.testing.assert_close(fusion.train()({"a": maps})[1:2], fusion({"a": maps[1:2]}))


def test_the_residual_block_begins_as_the_identity():
    """Its last convolution is zero when made."""
    block = AttentionFusion({"a": 2}).block
    x = torch.randn(2, 32, 4, 4)
    assert torch.equal(block(x), x)


def test_the_controller_is_drop_in():
    """The seed's constructor and call work, for both maps, either, or none."""
    controller = NTMController(128, 128, 256, 3, 32, 32)
    reps, attn = torch.randn(4, 8, 128), torch.rand(4, 16, 8, 4)
    for maps in ((attn, attn), (attn, None), (None, attn), (None, None), ()):
        output = controller(reps, *maps)
        read_key, write_key, erase, add, read_strength, write_strength = output
        assert output._fields == FIELDS
        assert {each.shape for each in (read_key, write_key, erase, add)} == {(4, 128)}
        assert read_strength.shape == write_strength.shape == (4, 1)
        assert not torch.equal(read_strength, write_strength)
    assert controller.mlp[-1].out_features == 4 * 128 + 2
    assert len(controller.mlp) == 5


def test_tied_strengths():
    """On request one strength serves both heads, and the MLP has an output less."""
    controller = make_controller(tie_strength=True)
    output = controller(torch.randn(2, 3, 10, dtype=torch.float64))
    assert output.read_strength is output.write_strength
    assert controller.mlp[-1].out_features == 4 * 6 + 1


def test_outputs_are_raw():
    """Erase, add and strengths are as the last layer gives them, beyond any activation's range."""
    controller = make_controller()
    with torch.no_grad():
        controller.mlp[-1].bias.fill_(50)
    output = controller(torch.randn(2, 3, 10, dtype=torch.float64))
    assert all((part > 40).all() for part in output)


def test_controller_presence_may_be_mixed():
    """A sample without a map gets what a call without that map gives it."""
    controller = make_controller()
    reps = torch.randn(2, 3, 10, dtype=torch.float64)
    hier, intra = make_maps(2, 3, 5, 5), make_maps(2, 3, 4, 9, seed=2)
    present = torch.tensor([True, False])
    output = controller(reps, hier, intra, hier_present=present, intra_present=present)
    both, none = controller(reps, hier, intra), controller(reps)
    for part, with_both, with_none in zip(output, both, none, strict=True):
        torch.testing.assert_close(part[0], with_both[0])
        torch.testing.assert_close(part[1], with_none[1])


def test_maps_are_fused_once_for_many_steps():
    """What fuse() made of static maps serves every step, and steps may be folded as well."""
    controller = make_controller()
    reps = torch.randn(4, 2, 3, 10, dtype=torch.float64)
    hier = make_maps(2, 3, 5, 5)
    fused = controller.fuse(hier)
    together = controller(reps, fused=fused)
    for t in range(4):
        for part, alone, whole in zip(
            controller(reps[t], fused=fused), controller(reps[t], hier), together, strict=True
        ):
            torch.testing.assert_close(part, alone)
            torch.testing.assert_close(whole[t], alone)


def test_maps_a_step_for_the_controller():
    """Representations and maps of T steps in one call equal a call a step."""
    controller = make_controller()
    reps = torch.randn(3, 2, 4, 10, dtype=torch.float64)
    hier = make_maps(3, 2, 3, 5, 5)
    output = controller(reps, hier)
    for t in range(3):
        for part, alone in zip(output, controller(reps[t], hier[t]), strict=True):
            torch.testing.assert_close(part[t], alone)


def test_the_controller_knows_where():
    """Moving the peak of a map changes the keys."""
    controller = make_controller()
    reps = torch.zeros(1, 2, 10, dtype=torch.float64)
    here = controller(reps, peak(6, 6, channels=3)).read_key
    there = controller(reps, peak(6, 7, channels=3)).read_key
    assert (here - there).abs().max() > 1e-4


def test_raw_scores_train_too():
    """Maps with negative entries give finite outputs and gradients, whatever was declared."""
    controller = make_controller()
    attn = torch.randn(2, 3, 14, 14, dtype=torch.float64, requires_grad=True)
    sum(part.sum() for part in controller(torch.zeros(2, 2, 10).double(), attn)).backward()
    assert attn.grad.isfinite().all()


def test_every_parameter_is_trained():
    """With one sample of each kind of presence every parameter gets a gradient."""
    controller = make_controller()
    present = torch.tensor([True, True, False])
    maps = make_maps(3, 3, 5, 5), make_maps(3, 3, 7, 7, seed=2)
    output = controller(
        torch.randn(3, 2, 10, dtype=torch.float64),
        *maps,
        hier_present=present,
        intra_present=present,
    )
    sum(part.square().sum() for part in output).backward()
    assert [name for name, each in controller.named_parameters() if each.grad is None] == []


def test_copies_and_state_dicts():
    """Deep copies, pickles and a loaded state_dict give bit-equal results."""
    controller = make_controller()
    reps, attn = torch.randn(2, 3, 10, dtype=torch.float64), make_maps(2, 3, 5, 5)
    loaded = NTMController(10, 6, 8, 3, 6, 4).double()
    loaded.load_state_dict(controller.state_dict())
    expected = controller(reps, attn).read_key
    for twin in (copy.deepcopy(controller), pickle.loads(pickle.dumps(controller)), loaded):
        assert torch.equal(twin(reps, attn).read_key, expected)


def test_autocast():
    """Under autocast the controller runs and trains."""
    controller = make_controller().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = controller(torch.randn(2, 3, 10), make_maps(2, 3, 14, 14).float())
    sum(part.float().sum() for part in output).backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in controller.parameters())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: make_controller()(torch.zeros(2, 1, 10), None, torch.rand(2, 5, 4, 4)),
            "attn_intra has 5 channels, but this controller was made with "
            "hier_channels=3 and intra_channels=3",
        ),
        (
            lambda: make_controller(hier_channels=2)(
                torch.zeros(2, 1, 10), torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)
            ),
            "attn_hier has 3 channels, but this controller was made with "
            "hier_channels=2 and intra_channels=3",
        ),
        (
            lambda: make_controller()(
                torch.zeros(2, 1, 10), torch.rand(2, 3, 4, 4), fused=torch.zeros(2, 72)
            ),
            "give the maps or what fuse() made of them, not both",
        ),
        (
            lambda: make_controller()(torch.zeros(2, 1, 10), torch.rand(3, 3, 4, 4)),
            "the batch sizes differ: the rest has 2, attn_hier has 3",
        ),
        (
            lambda: make_fusion()({"a": torch.rand(2, 3, 4, 4)}),
            "a has 3 channels; declared are: a 2, b 3",
        ),
        (
            lambda: make_fusion()({"c": torch.rand(2, 3, 4, 4)}),
            "there is no source 'c'; declared are: a 2, b 3",
        ),
        (
            lambda: make_fusion()({"a": torch.rand(2, 0, 4)}),
            "a is (2, 0, 4); a map is (batch, channels, height, width), "
            "with time before the batch if it changes",
        ),
        (
            lambda: make_fusion()({"a": torch.rand(3, 2, 2, 4, 4), "b": torch.rand(4, 2, 3, 4, 4)}),
            "the numbers of steps differ: a has 3, b has 4",
        ),
        (
            lambda: make_fusion()({"a": torch.rand(2, 2, 4, 4)}, {"a": torch.ones(3)}),
            "the batch sizes differ: a has 2, the presence of a has 3",
        ),
        (
            lambda: make_controller()(torch.zeros(2, 10)),
            "reps is (2, 10); it must be (batch, places, 10)",
        ),
        (
            lambda: make_fusion()({}),
            "no map is given, so the batch size must be",
        ),
        (
            lambda: make_fusion(kind="logits"),
            "kind is 'logits'; it must be 'probabilities' or 'scores'",
        ),
    ],
)
def test_wrong_use_is_told(call, message):
    """Each wrong use is refused with what was given and what was declared."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


def test_a_map_without_mass_is_finite_in_half_precision():
    """A map of zeros, or of scores that are masked everywhere, has no mass and harms nothing."""
    fusion = AttentionFusion({"a": 2}, 4, grid=4).half()
    assert fusion({"a": torch.zeros(1, 2, 5, 5).half()}).isfinite().all()
    scores = AttentionFusion({"a": 2}, 4, grid=4, kind="scores")
    given = torch.randn(1, 2, 5, 5)
    given[:, 1] = -torch.inf
    assert scores({"a": given}).isfinite().all()
