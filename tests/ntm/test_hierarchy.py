"""The whole system: windows, batches, padding and absent maps change nothing they should not."""

from __future__ import annotations

import copy
import gc
import pickle
import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.machine import resident_mb
from onegraph.lifetime import assert_detached, detach, split_at, windows
from onegraph.ntm import HierarchicalNTM
from onegraph.ntm.controllers import CONTROLLERS, map_nest
from onegraph.ntm.hierarchy import HierarchicalState, sinusoids
from tests import forked

DRAWS = settings(max_examples=20, deadline=None, derandomize=True)
OPTIONS = st.fixed_dictionaries(
    {
        "reach": st.integers(1, 4),
        "heads": st.sampled_from([1, 2]),
        "layers": st.integers(1, 2),
        "maps": st.sampled_from([(), ("intra",), ("hier",), ("intra", "hier")]),
        "controller": st.sampled_from(sorted(CONTROLLERS)),
        "positions": st.booleans(),
    }
)


def make_model(**options):
    """A small model of float64 whose parameters are the same at every call."""
    torch.manual_seed(0)
    sizes = {"d_model": 8, "hidden_size": 6, "memory": (4, 5), "reach": 3}
    model = HierarchicalNTM(12, 3, 2, **{**sizes, **options}).double()
    for each in model.parameters():
        # Nothing that begins at zero hides that it is used.
        each.data.add_(0.1 * torch.randn_like(each))
    return model


def make_tokens(segments, batch, length=6):
    """Tokens (segments, batch, length)."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(12, (segments, batch, length), generator=generator)


def assert_same(one, other):
    """Two nests hold close tensors."""

    def same(a, b):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
        return a

    map_nest(same, one, other)


def total(output):
    """One number that depends on all answers."""
    return output.classes.square().sum() + output.tokens.square().sum()


@DRAWS
@given(OPTIONS, st.integers(1, 6), st.integers(1, 3), st.data())
def test_chunks_change_nothing(options, segments, batch, data):
    """One call of S segments equals any split of it, in answers, maps, state and gradients."""
    model = make_model(**options)
    tokens = make_tokens(segments, batch)
    whole, last = model(tokens)
    assert whole.classes.shape == (segments, batch, 3)
    assert whole.tokens.shape == (segments, batch, 6, 2)
    inner = data.draw(st.sets(st.integers(1, segments - 1), max_size=3)) if segments > 1 else ()
    cuts = [0, *sorted(inner), segments]
    state, parts = None, []
    for begin, end in pairwise(cuts):
        part, state = model(tokens[begin:end], state)
        parts.append(part)
    assert_same(type(whole)(*map(torch.cat, zip(*parts, strict=True))), whole)
    assert_same(state, last)
    parameters = list(model.parameters())
    one = torch.autograd.grad(total(whole), parameters, materialize_grads=True)
    many = torch.autograd.grad(sum(map(total, parts)), parameters, materialize_grads=True)
    assert_same(many, one)


@DRAWS
@given(OPTIONS, st.integers(1, 4), st.permutations(range(4)))
def test_permuting_the_batch_permutes_the_outputs(options, segments, order):
    """No sample sees another."""
    model = make_model(**options)
    tokens = make_tokens(segments, 4)
    output, state = model(tokens)
    moved, moved_state = model(tokens[:, order])
    assert_same(moved, map_nest(lambda each: each[:, order], output))
    assert_same(moved_state, map_nest(lambda each: each[order], state))


@DRAWS
@given(OPTIONS, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_padding_segments_change_nothing(options, lengths):
    """A document that has ended keeps its state, and answers nothing, whatever its tokens hold."""
    model = make_model(**options)
    tokens = make_tokens(4, len(lengths))
    padded = tokens.clone()
    for sample, length in enumerate(lengths):
        padded[length:, sample] = 10**9
    start = detach(model(make_tokens(2, len(lengths)))[1])
    output, state = model(padded, start, lengths=torch.tensor(lengths))
    for sample, length in enumerate(lengths):
        mine = map_nest(lambda each, k=sample: each[k : k + 1], start)
        assert (output.classes[length:, sample] == 0).all()
        assert (output.tokens[length:, sample] == 0).all()
        after = map_nest(lambda each, k=sample: each[k : k + 1], state)
        if length:
            alone, mine = model(tokens[:length, sample : sample + 1], mine)
            assert_same(output.classes[:length, sample : sample + 1], alone.classes)
        assert_same(after, mine)


def test_padding_tokens_change_nothing():
    """What stands where the mask is false changes no class, no state and no column of a map."""
    model = make_model(maps=("hier",))
    tokens = make_tokens(3, 2)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[..., 4:] = False
    mask[1, 0] = False
    other = torch.where(mask, tokens, 11 - tokens)
    output, state = model(tokens, mask=mask)
    changed, changed_state = model(other, mask=mask)
    assert_same(changed.classes, output.classes)
    assert_same(changed_state, state)
    assert (output.intra[0, ..., 4:] == 0).all()
    assert (output.intra[0, ..., 4:, :] == 0).all()
    short, _ = model(tokens[..., :4], mask=mask[..., :4])
    assert_same(short.classes, output.classes)


def test_maps_are_probabilities_and_see_what_there_is():
    """Rows of the maps sum to 1, and those of segments before the document are 0."""
    model = make_model(reach=3, heads=2, layers=2)
    output, state = model(make_tokens(4, 2))
    assert output.intra.shape == (4, 2, 4, 6, 6)
    assert output.hier.shape == (4, 2, 4, 3, 3)
    assert_same(output.intra.sum(-1), torch.ones(4, 2, 4, 6).double())
    rows = torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]).double()
    assert_same(output.hier.sum(-1), rows.view(4, 1, 1, 3).expand(4, 2, 4, 3))
    assert state.seen.all()


@pytest.mark.parametrize("source", ["intra", "hier"])
def test_presence_mixed_in_a_batch(source):
    """A sample whose map is absent is answered as by the model that is never shown that map."""
    both = make_model()
    other = {"intra": "hier", "hier": "intra"}[source]
    one = make_model(maps=(other,))
    one.load_state_dict(both.state_dict())
    tokens = make_tokens(3, 3)
    present = torch.tensor([True, False, True])
    mixed, _ = both(tokens, **{f"{source}_present": present})
    with_both, without = both(tokens)[0], one(tokens)[0]
    for sample, here in enumerate(present.tolist()):
        expected = with_both if here else without
        assert_same(mixed.classes[:, sample], expected.classes[:, sample])
    assert not torch.allclose(with_both.classes, without.classes)
    stepwise = present.expand(3, 3).clone()
    stepwise[0] = True
    mixed, _ = both(tokens, **{f"{source}_present": stepwise})
    assert_same(mixed.classes[0], with_both.classes[0])


def test_absent_maps_are_no_maps():
    """Both maps absent by mask is the model without maps, which has as many parameters."""
    both, none = make_model(), make_model(maps=())
    none.load_state_dict(both.state_dict())
    nobody = torch.zeros(2, dtype=torch.bool)
    tokens = make_tokens(3, 2)
    masked, _ = both(tokens, intra_present=nobody, hier_present=nobody)
    assert_same(masked.classes, none(tokens)[0].classes)


def test_only_maps_tell_the_order_of_tokens():
    """Without maps and positions a shuffled segment has the same answer; with either, another."""
    tokens = make_tokens(3, 2)
    order = [3, 0, 5, 1, 4, 2]
    for options, blind in (
        ({"maps": ()}, True),
        ({"maps": ("hier",)}, True),
        ({"maps": ("intra",)}, False),
        ({"maps": (), "positions": True}, False),
    ):
        model = make_model(**options)
        one, other = model(tokens)[0].classes, model(tokens[..., order])[0].classes
        assert torch.allclose(one, other, atol=1e-10) == blind


def test_a_segment_sees_itself_and_what_came_before():
    """A first segment is answered as if it were alone, and no answer sees a later segment."""
    far, near = make_model(maps=("intra",)), make_model(maps=("intra",), reach=1)
    near.load_state_dict(far.state_dict())
    tokens = make_tokens(4, 2)
    assert_same(far(tokens)[0].classes[0], near(tokens)[0].classes[0])
    changed = tokens.clone()
    changed[2] = 11 - changed[2]
    one, other = far(tokens)[0].classes, far(changed)[0].classes
    assert_same(one[:2], other[:2])
    assert not torch.allclose(one[2], other[2])


def test_gradients_reach_everything():
    """A loss on the last segment's class reaches every parameter but the other head's."""
    model = make_model()
    output, _ = model(make_tokens(5, 3))
    output.classes[-1].square().sum().backward()
    missed = [
        name
        for name, each in model.named_parameters()
        if each.grad is None or not each.grad.count_nonzero()
    ]
    # The vector that stands for absent maps has a gradient of zero: no map was absent.
    assert missed == ["fusion.absent", "tag.weight", "tag.bias"]


def test_gradients_reach_encoders_through_the_maps_alone():
    """What the maps are made of learns from the controller, where no value passes on."""
    for source in ("intra", "hier"):
        model = make_model(maps=(source,))
        layer = getattr(model, source).layers[0]
        torch.nn.init.zeros_(layer.join.weight)
        model(make_tokens(4, 3))[0].classes.square().sum().backward()
        query = layer.project.weight.grad[:8]
        assert query.count_nonzero() == query.numel()


def test_state_in_and_out():
    """The state is a named tuple that detaches; the module keeps nothing of a call."""
    model = make_model()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    tokens = make_tokens(2, 3)
    _, state = model(tokens)
    assert isinstance(state, HierarchicalState)
    cut = detach(state)
    assert type(cut) is HierarchicalState
    assert_detached(cut)
    assert_same(cut, state)
    assert_same(model(tokens)[0], model(tokens, model.initial_state(3))[0])
    assert_same(dict(model.state_dict()), before)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same(twin(tokens, cut)[0], model(tokens, cut)[0])


def nodes(tensor):
    """How many nodes the graph behind a tensor has."""
    seen, stack = set(), [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [other for other, _ in node.next_functions]
    return len(seen)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_windows_keep_graph_and_memory_flat(count):
    """With a carried, detached state each window's graph has the same size and leaves nothing."""
    model = make_model()
    tokens = make_tokens(2, 2)
    state, sizes, alive, resident = model.initial_state(2), set(), [], []
    for window in range(count):
        output, new = model(tokens, state)
        loss = total(output)
        sizes.add(nodes(loss))
        loss.backward()
        model.zero_grad()
        state = detach(new)
        del output, new, loss
        if window in (99, count - 1):
            gc.collect()
            # By type: asking some other objects for their class is a warning.
            alive.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))
            resident.append(resident_mb())
    assert len(sizes) == 1
    assert alive[0] == alive[1]
    assert resident[1] - resident[0] < 4


def test_a_state_that_is_not_cut_carries_its_graph():
    """What the test above counts grows when the state is handed on as it came."""
    model = make_model()
    tokens = make_tokens(2, 2)
    output, state = model(tokens)
    first = nodes(total(output))
    output, _ = model(tokens, state)
    assert nodes(total(output)) > 1.5 * first


def test_split_where_maps_are_shared():
    """Encoders once, the memory in windows of a split graph: the gradients of the plain loop."""
    model, tokens = make_model(), make_tokens(6, 2)
    start = detach(model(make_tokens(2, 2))[1])
    encoded, context = model.encode(tokens, start)
    memory = start.memory
    with split_at((encoded.tokens, encoded.fused)) as (words, fused):
        leaves = encoded._replace(tokens=words, fused=fused)
        for window in windows(leaves, 2):
            output, memory = model.remember(window.data, memory)
            total(output).backward()
            memory = detach(memory)
    state = detach(context._replace(memory=memory))
    gradients = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    # The memory is cut between windows, the encoders are not.
    encoded, context = model.encode(tokens, start)
    memory, losses = start.memory, []
    for begin in (0, 2, 4):
        part = map_nest(lambda each, k=begin: each[k : k + 2], encoded)
        output, memory = model.remember(part, memory)
        losses.append(total(output))
        memory = detach(memory)
    sum(losses).backward()
    assert_same([e.grad for e in model.parameters() if e.grad is not None], gradients)
    assert_same(state, detach(context._replace(memory=memory)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.zeros(2, 3)), "tokens is (2, 3) of torch.float32; it must be"),
        (lambda m: m(torch.zeros(0, 3, 4, dtype=torch.long)), "tokens is (0, 3, 4)"),
        (lambda m: m(make_tokens(1, 3), m.initial_state(2)), "are (2, 2, 8); this needs (3, 2, 8)"),
        (lambda m: m(make_tokens(1, 3), lengths=torch.ones(2)), "lengths has (2,); x has a"),
        (lambda m: m(make_tokens(2, 3), lengths=[1, 2, 3]), "between 0 and the 2 steps of x"),
        (lambda m: m(make_tokens(1, 3), mask=torch.ones(3, 6)), "mask is (3, 6); tokens is"),
        (lambda m: make_model(maps=("intra", "extra")), "there are intra and hier"),
        (lambda m: make_model(reach=0), "reach is 0"),
        (lambda m: make_model(heads=3), "8 numbers cannot be shared by 3 attention heads"),
    ],
    ids=range(9),
)
def test_what_does_not_fit_is_named(call, message):
    """A shape or an option that does not fit is an error that names both sides."""
    with pytest.raises(ValueError, match=re.escape(message)):
        call(make_model())


def test_sinusoids_tell_places_apart():
    """Every place has its own sinusoids, of any size."""
    for size in (1, 5, 8):
        table = sinusoids(30, size)
        assert table.shape == (30, size)
        assert len(torch.unique(table, dim=0)) == 30


def test_autocast_and_narrow_types():
    """Under autocast the addressing stays in float32; the answers are finite and learn."""
    model = make_model().float()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = model(make_tokens(3, 2))
    assert state.memory.memory.dtype == torch.float32
    total(output).backward()
    assert all(each.grad.isfinite().all() for each in model.intra.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = model(make_tokens(3, 2), detach(state))
    assert output.classes.isfinite().all()


PROGRAM = """
import torch
from onegraph.lifetime import detach, windows
from onegraph.ntm import HierarchicalNTM
from onegraph.ntm.needle import Needle

torch.manual_seed(0)
task = Needle(distance=2, facts=1)
model = HierarchicalNTM(task.vocabulary, task.classes, d_model=8, hidden_size=8, reach=3)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
generator = torch.Generator().manual_seed(0)
for step in range(10):
    batch = task.draw(2, generator)
    optimizer.zero_grad()
    {body}
    optimizer.step()
"""
WHOLE = "task.loss(model(batch.tokens)[0].classes, batch).backward()"
WINDOWS = """state = model.initial_state(2)
    for window in windows(batch, 5):
        output, new = model(window.data.tokens, state)
        task.loss(output.classes, window.data).backward()
        state = detach(new)"""


@pytest.mark.parametrize("body", [WHOLE, WINDOWS], ids=["whole", "windows"])
@pytest.mark.usefixtures("torch_loaded")
def test_training_gives_no_finding(tmp_path, body):
    """`onegraph run` on a short training run, whole or in windows, finds nothing to tell."""
    (tmp_path / "train.py").write_text(PROGRAM.format(body=body))
    run = forked.run(tmp_path, ["train.py"])
    assert (run.status, run.findings) == (0, []), run.err


def test_padding_is_not_looked_at():
    """What stands at a masked place, a number that no token has included, changes nothing."""
    model = make_model()
    tokens = make_tokens(2, 3)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[..., -1] = False
    other = tokens.masked_fill(~mask, -1)
    assert torch.equal(model(tokens, mask=mask)[0].classes, model(other, mask=mask)[0].classes)


def test_a_batch_of_none():
    """An empty batch goes through, as it does through torch's own layers."""
    output, state = make_model()(make_tokens(2, 3)[:, :0])
    assert output.classes.shape[:2] == (2, 0)
    assert state.memory.memory.shape[0] == 0


@pytest.mark.parametrize("maps", [("intra",), ("hier",), ()])
def test_every_parameter_takes_part_whatever_is_shown(maps):
    """Stems whose map is not shown get gradients of zero: processes agree on what has one."""
    model = make_model(maps=maps)
    output, _ = model(make_tokens(2, 3))
    (output.classes.sum() + output.tokens.sum()).backward()
    assert [name for name, each in model.named_parameters() if each.grad is None] == []
