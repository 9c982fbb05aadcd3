"""A graph split at a tensor: exact gradients, one pass through the trunk, clear refusals."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from onegraph.lifetime import TrunkChanged, backward_sum, blocks, pairwise_blocks, split_at

DOUBLE = torch.float64


def parts(seed: int, rows: int = 7, wide: int = 3) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """A trunk, a head and a batch in float64."""
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Linear(wide, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    head = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    return trunk, head, torch.randn(rows, wide, dtype=DOUBLE, requires_grad=True)


def gradients(*holders: nn.Module | torch.Tensor) -> list[torch.Tensor]:
    """All gradients, and none of them left."""
    found = []
    for holder in holders:
        tensors = [holder] if isinstance(holder, torch.Tensor) else list(holder.parameters())
        for tensor in tensors:
            assert tensor.grad is not None
            found.append(tensor.grad.clone())
            tensor.grad = None
    return found


def close(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 10), st.integers(0, 3))
def test_gradients_are_those_of_the_sum(rows: int, size: int, seed: int) -> None:
    """Whatever the blocks, the gradients equal one backward of the summed loss."""
    trunk, head, x = parts(seed, rows)
    head(trunk(x)).pow(2).sum().backward()
    whole = gradients(trunk, head, x)
    with split_at(trunk(x)) as leaf:
        for block in blocks(leaf, size):
            head(block.values).pow(2).sum().backward()
    close(gradients(trunk, head, x), whole)


@settings(deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 6), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5)
)
def test_pairs_are_those_of_the_whole_matrix(n: int, d: int, m: int, r: int, c: int) -> None:
    """Pair by pair or at once, with uneven last blocks, values and gradients are the same."""
    torch.manual_seed(n)
    x = torch.randn(n, d, dtype=DOUBLE, requires_grad=True)
    y = torch.randn(m, d + 1, dtype=DOUBLE, requires_grad=True)
    weight = torch.randn(n, m, dtype=DOUBLE)
    grid = torch.cat((x[:, None].expand(n, m, d), y[None].expand(n, m, d + 1)), -1)
    (grid.tanh().prod(-1) * weight).sum().backward()
    whole = gradients(x, y)
    seen = torch.zeros(n, m)
    for b in pairwise_blocks(x, y, block=(r, c)):
        torch.testing.assert_close(b.features, grid[b.rows, b.cols])
        (b.features.tanh().prod(-1) * weight[b.rows, b.cols]).sum().backward()
        seen[b.rows, b.cols] += 1
    close(gradients(x, y), whole)
    assert torch.equal(seen, torch.ones(n, m))
    assert b.last


def test_pairs_of_one_tensor_with_itself() -> None:
    """Rows and columns of one tensor add up in one gradient."""
    x = torch.randn(5, 3, dtype=DOUBLE, requires_grad=True)
    grid = torch.cat((x[:, None].expand(5, 5, 3), x[None].expand(5, 5, 3)), -1)
    grid.sin().pow(3).sum().backward()
    (whole,) = gradients(x)
    for b in pairwise_blocks(x, block=2):
        b.features.sin().pow(3).sum().backward()
    close(gradients(x), [whole])


def test_blocks_of_several_dimensions() -> None:
    """Blocks tile the tensor, in two dimensions too, and each knows where it is."""
    x = torch.randn(5, 6, 2, dtype=DOUBLE, requires_grad=True)
    x.exp().sum().backward()
    (whole,) = gradients(x)
    covered = torch.zeros(5, 6, 2)
    for block in blocks(x, (2, 4), dim=(0, 1)):
        assert torch.equal(block.values, x[block.index])
        covered[block.index] += 1
        block.values.exp().sum().backward()
    assert torch.equal(covered, torch.ones(5, 6, 2))
    close(gradients(x), [whole])


def test_blocks_add_to_a_gradient_that_is_there() -> None:
    """Earlier gradients stay, second derivatives are added too, and none appears from nothing."""
    x = torch.ones(4, requires_grad=True)
    assert len(list(blocks(x, 2))) == 2
    assert x.grad is None
    x.grad = torch.full((4,), 10.0)
    for block in blocks(x, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            block.values.pow(2).sum().backward(create_graph=block.last)
    assert torch.equal(x.grad, torch.full((4,), 12.0))


def test_blocks_of_a_parameter_tell_its_hooks() -> None:
    """Whoever listens to a parameter's gradient hears of every block."""
    weight = nn.Parameter(torch.ones(4))
    heard = []
    weight.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad.clone()))
    for block in blocks(weight, 2):
        block.values.sum().backward()
    assert [g.tolist() for g in heard] == [[1, 1, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    "cut",
    [lambda x: blocks(x, 2), lambda x: pairwise_blocks(x, block=2)],
    ids=["blocks", "pairwise_blocks"],
)
def test_a_graph_behind_the_tensor_is_refused(cut) -> None:
    """Blocks of a tensor that has a graph are an error before anything goes backward."""
    x = torch.randn(4, 3, requires_grad=True)
    with pytest.raises(ValueError, match=r"was made by TanhBackward0.*`with split_at"):
        cut(x.tanh())
    with torch.no_grad():
        list(cut(x.tanh()))
    list(cut(torch.ones(4, 3)))


def test_wrong_sizes_are_refused() -> None:
    """A block of nothing, and sizes that fit no dimension, are named."""
    x = torch.ones(4, 3)
    with pytest.raises(ValueError, match="a block of 0"):
        blocks(x, 0)
    with pytest.raises(ValueError, match="2 sizes for 1 dimensions"):
        blocks(x, (1, 2))
    with pytest.raises(ValueError, match="has no 2"):
        blocks(x, 1, dim=2)
    with pytest.raises(ValueError, match=r"y is \[4\], not a matrix"):
        pairwise_blocks(x, torch.ones(4))


def test_a_nest_is_split_whole() -> None:
    """Each tensor of a nest gets its gradient; what needs none is passed on as it is."""
    trunk, _, x = parts(0)
    constant = torch.ones(1)
    out = trunk(x)
    (out * 2).sum().backward(retain_graph=True)
    whole = gradients(trunk, x)
    with split_at({"a": [out], "b": (out, constant)}) as leaf:
        assert leaf["b"][1] is constant
        assert leaf["a"][0] is leaf["b"][0]
        leaf["a"][0].sum().backward()
        leaf["b"][0].sum().backward()
    close(gradients(trunk, x), whole)


def test_splits_nest() -> None:
    """A split inside a split sends its gradient through both trunks."""
    trunk, head, x = parts(1)
    middle = nn.Linear(4, 4).double()
    head(middle(trunk(x)).sin()).sum().backward()
    whole = gradients(trunk, middle, head, x)
    with split_at(trunk(x)) as outer:
        for block in blocks(outer, 3):
            with split_at(middle(block.values)) as inner:
                for row in blocks(inner, 1):
                    head(row.values.sin()).sum().backward()
    close(gradients(trunk, middle, head, x), whole)


def test_a_changed_parameter_is_refused_before_any_gradient() -> None:
    """An optimizer's step inside raises when the block is left, with the trunk untouched."""
    trunk, head, x = parts(2)
    optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.1)
    nn.init.ones_(trunk[2].weight)
    out = trunk(x)
    for parameter in trunk.parameters():
        parameter.grad = torch.ones_like(parameter)

    def step_inside() -> None:
        with split_at(out) as leaf:
            head(leaf).sum().backward()
            optimizer.step()

    with pytest.raises(
        TrunkChanged, match=r"parameter of shape .* call optimizer.step\(\) after the block"
    ):
        step_inside()
    assert x.grad is None
    for parameter in trunk.parameters():
        assert torch.equal(parameter.grad, torch.ones_like(parameter))


def test_a_changed_output_is_refused() -> None:
    """Writing into the trunk's output inside raises as well."""
    trunk, head, x = parts(2)

    def write_inside() -> None:
        with split_at(trunk(x)) as leaf:
            head(leaf).sum().backward()
            with torch.no_grad():
                leaf.zero_()

    with pytest.raises(TrunkChanged, match="tree was changed in place"):
        write_inside()


def test_an_exception_leaves_the_trunk_alone() -> None:
    """When the block raises, its exception goes on and no gradient reaches the trunk."""
    trunk, head, x = parts(3)

    def raise_inside() -> None:
        with split_at(trunk(x)) as leaf:
            head(leaf).sum().backward()
            raise KeyError

    with pytest.raises(KeyError):
        raise_inside()
    assert x.grad is None


def test_leaving_early_is_safe() -> None:
    """After `break` and `return` what went backward so far has gone through the trunk."""
    trunk, head, x = parts(4)
    out = trunk(x)
    head(out[:3]).sum().backward(retain_graph=True)
    first = gradients(trunk, head, x)[: len(list(trunk.parameters()))]

    def leave_by(how: str) -> None:
        for _ in range(1):
            with split_at(out) as leaf:
                for block in blocks(leaf, 3):
                    head(block.values).sum().backward()
                    if how == "return":
                        return
                    break

    leave_by("return")
    close(gradients(trunk), first)


def test_a_leaf_without_gradient_is_warned_about() -> None:
    """The warning names the tensor that no backward reached."""
    trunk, head, x = parts(5)
    with pytest.warns(UserWarning, match=r"no backward inside the block reached tree\[1\]"):
        with split_at((trunk(x), x * 2)) as (leaf, _):
            head(leaf).sum().backward()


def test_nothing_happens_without_gradients() -> None:
    """Under no_grad the nest comes back as it is, without a warning."""
    trunk, _, x = parts(6)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        out = trunk(x)
        with split_at(out) as leaf:
            assert leaf is out


def test_the_trunk_is_walked_once_and_freed() -> None:
    """Many backward calls inside, one through the trunk, and its graph is gone afterwards."""
    trunk, head, x = parts(7)
    out = trunk(x)
    walks = []
    out.register_hook(lambda g: walks.append(1))
    with split_at(out) as leaf:
        for block in blocks(leaf, 1):
            head(block.values).sum().backward()
    assert walks == [1]
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_with_checkpoints_and_scaled_autocast(reentrant: bool) -> None:
    """Trunks that are checkpointed, and losses scaled under autocast, give the sum's gradients."""
    trunk, head, x = parts(8)
    trunk, head, x = trunk.float(), head.float(), x.detach().float().requires_grad_()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def forward() -> torch.Tensor:
        return checkpoint(trunk, x, use_reentrant=reentrant)

    with torch.autocast("cpu", torch.bfloat16):
        out = forward()
        loss = head(out).float().pow(2).sum()
    scaler.scale(loss).backward()
    whole = gradients(trunk, head, x)
    with torch.autocast("cpu", torch.bfloat16):
        with split_at(forward()) as leaf:
            loss = head(leaf).float().pow(2).sum()
            scaler.scale(loss).backward()
    for one, other in zip(gradients(trunk, head, x), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_with_a_compiled_trunk() -> None:
    """A compiled trunk takes the gathered gradient as an eager one does."""
    trunk, head, x = parts(9)
    head(trunk(x)).sum().backward()
    whole = gradients(trunk, head, x)
    compiled = torch.compile(trunk, backend="aot_eager")
    with split_at(compiled(x)) as leaf:
        for block in blocks(leaf, 2):
            head(block.values).sum().backward()
    close(gradients(trunk, head, x), whole)


# -- several losses over one graph ----------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=4))
def test_a_sum_of_losses_in_one_pass(weights: list[float]) -> None:
    """Gradients equal those of the weighted sum, and the losses come back as numbers."""
    trunk, head, x = parts(10)
    terms = lambda: [head(trunk(x)).pow(k + 1).mean() for k in range(len(weights))]  # noqa: E731
    sum(w * t for w, t in zip(weights, terms(), strict=True)).backward()
    whole = gradients(trunk, head, x)
    losses = terms()
    values = backward_sum(losses, weights)
    assert values == [loss.item() for loss in losses]
    close(gradients(trunk, head, x), whole)


def test_losses_by_name() -> None:
    """A dict gives a dict; a weight left out is one; a constant loss only counts."""
    w = torch.tensor(3.0, requires_grad=True)
    values = backward_sum({"a": w * w, "b": w, "c": torch.tensor(5.0)}, {"b": torch.tensor(10.0)})
    assert values == {"a": 9.0, "b": 3.0, "c": 5.0}
    assert w.grad is not None
    assert w.grad.item() == 16


def test_scaled_losses() -> None:
    """A scaler scales the gradients and leaves the numbers as they are."""
    w = torch.tensor(3.0, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert backward_sum([w, 2 * w], scaler=scaler) == [3.0, 6.0]
    assert w.grad is not None
    assert w.grad.item() == 24


def test_wrong_losses_are_named() -> None:
    """No loss, a loss of many numbers, a strange weight and constants alone are errors."""
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="there is no loss"):
        backward_sum({})
    with pytest.raises(ValueError, match=r"losses\['a'\] is \[2\], not one number"):
        backward_sum({"a": w})
    with pytest.raises(ValueError, match="a weight for 'b'"):
        backward_sum({"a": w.sum()}, {"b": 1})
    with pytest.raises(ValueError, match="2 weights for 1 losses"):
        backward_sum([w.sum()], [1, 2])
    with pytest.raises(RuntimeError, match="none of the losses requires a gradient"):
        backward_sum([torch.ones(())])
