"""The programs of `examples/`: seeds told by their true reason, and repaired ones that train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).parent.parent
FUSION = "examples/fusion_controller.py"
REPAIRS = "examples/fusion_controller_popular_repairs.py"
PAIRWISE = "examples/pairwise_blocks.py"
RETAINED = "examples/pairwise_retained.py"
DONE_RIGHT = (
    "actor_critic",
    "contrastive",
    "fusion_done_right",
    "gan",
    "language_model",
    "pairwise_done_right",
)

pytestmark = pytest.mark.usefixtures("torch_loaded")


def line_of(program: str, text: str, nth: int = 0) -> int:
    """The number of the nth line of an example that contains ``text``."""
    lines = (ROOT / program).read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if text in line][nth]


@pytest.mark.parametrize(
    ("fault", "symptom", "cause", "name"),
    [
        ("memory", "second-backward", "carried-state", "memory"),
        ("maps", "second-backward", "built-outside-loop", "attn_intra"),
        ("cached", "second-backward", "cached-on-module", "self.cached_reps"),
        (
            "optimizer-step",
            "inplace-modified",
            "optimizer-step-between",
            "controller.mlp.4.weight",
        ),
    ],
)
def test_fusion_controller_fault(fault, symptom, cause, name):
    """Each fault of the fusion controller is named by its own cause and variable."""
    run = forked.run(ROOT, [FUSION, "--fault", fault])
    assert run.status == 1
    first = run.findings[0]
    assert (first["symptom"], first["cause"], first["names"][0]) == (symptom, cause, name)


def test_fusion_controller_done_right():
    """Without a fault the controller trains and there is nothing to say."""
    run = forked.run(ROOT, [FUSION, "--fault", "none"])
    losses = [float(line.split()[-1]) for line in run.out.splitlines()]
    assert (run.status, run.findings) == (0, [])
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("repair", ["no-clone", "no-inplace-add", "clone-strength"])
def test_popular_repair_that_repairs_nothing(repair):
    """Dropping the clone, the in-place add or the shared strength leaves the same finding."""
    unrepaired = forked.run(ROOT, [FUSION, "--fault", "maps"]).findings[0]
    first = forked.run(ROOT, [REPAIRS, "--repair", repair]).findings[0]
    for key in ("symptom", "cause", "names"):
        assert first[key] == unrepaired[key]
    for role in ("built", "joined", "freed", "failed"):
        lines = [(site["file"], site["line"]) for site in first["sites"][role]]
        assert lines == [(site["file"], site["line"]) for site in unrepaired["sites"][role]]


def test_detaching_all_inputs_runs():
    """Detaching every input in forward runs, at the price of the map encoders' gradients."""
    run = forked.run(ROOT, [REPAIRS, "--repair", "detach-inputs"])
    assert run.status == 0
    named = [name for finding in run.findings for name in finding["shared"]["parameters"]]
    assert {finding["cause"] for finding in run.findings} == {"detach-cut"}
    assert {name.partition(".")[0] for name in named} == {"hier_encoder", "intra_encoder"}
    assert "never got a gradient: hier_encoder, intra_encoder" in run.out


def test_one_strength_returned_twice_is_harmless():
    """Returning one strength twice is no fault while one backward call uses both."""
    run = forked.run(ROOT, [REPAIRS, "--repair", "strength-twice"])
    assert (run.status, run.findings) == (0, [])


@pytest.mark.parametrize("repair", ["strength-two-backwards", "clone-strength-two-backwards"])
def test_strength_used_by_two_backward_calls(repair):
    """Two backward calls through the shared strength fail, and clone() does not help."""
    first = forked.run(ROOT, [REPAIRS, "--repair", repair]).findings[0]
    assert first["cause"] == "several-losses-one-graph"


def test_pairwise_blocks_without_a_layer_run_clean():
    """Four backward calls through nodes that save nothing pass, and --notes says why."""
    assert forked.run(ROOT, [PAIRWISE]).findings == []
    (note,) = forked.run(ROOT, [PAIRWISE], ["--notes"]).findings
    assert note["level"] == "note"
    assert note["sites"]["failed"][0]["count"] == 4
    assert "none of those nodes saves a tensor" in note["summary"]


def test_pairwise_retained_names_the_transposed_weight():
    """The [3000, 512] tensor of torch's message is the second layer's weight, seen transposed."""
    run = forked.run(ROOT, [RETAINED])
    first = run.findings[0]
    assert "[3000, 512]" in run.err
    assert (first["cause"], first["names"][0]) == ("optimizer-step-between", "encoder.2.weight")
    assert first["sites"]["mutated"][0]["line"] == line_of(RETAINED, "optimizer.step()")
    assert first["sites"]["needed"][0]["line"] == line_of(RETAINED, "codes = encoder")
    assert "transposed to [3000, 512]" in first["sites"]["needed"][0]["label"]


def test_detached_blocks_name_what_they_cut_off(tmp_path):
    """Detaching each block, a popular answer, ends the error of one kind with one of another."""
    text = (ROOT / PAIRWISE).read_text().replace("block.sum()", "block.detach().sum()")
    (tmp_path / "train.py").write_text(text)
    first = forked.run(tmp_path, ["train.py", "--layer"]).findings[0]
    assert (first["symptom"], first["cause"]) == ("no-grad", "detach-cut")
    assert {"loss", "vector_list"} & set(first["names"])


def test_pairwise_blocks_behind_a_layer():
    """Behind a linear layer the second block fails, and the report names the matrix."""
    run = forked.run(ROOT, [PAIRWISE, "--layer"])
    first = run.findings[0]
    assert (first["cause"], first["names"][0]) == ("sliced-or-blocked", "matrix")
    assert first["sites"]["built"][0]["line"] == line_of(PAIRWISE, "matrix = layer(matrix)")
    assert len(run.out.splitlines()) == 1


@pytest.mark.parametrize("program", DONE_RIGHT)
def test_done_right(program):
    """A program built with the primitives trains, retains no graph, and there is nothing to say."""
    path = f"examples/{program}.py"
    run = forked.run(ROOT, [path], ["--notes"])
    assert (run.status, run.findings, run.err) == (0, [], "")
    falling = [float(number) for number in re.findall(r" ([\d.]+)$", run.out, re.MULTILINE)]
    assert falling[-1] < 0.6 * falling[0]
    assert "retain_graph" not in (ROOT / path).read_text()
