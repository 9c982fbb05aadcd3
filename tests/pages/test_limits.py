"""What docs/limits.md says it tried, tried again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

TWICE = "y.sum().backward()\n(y * 2).sum().backward()\n"
FUNCTION = """
import torch
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y
early = Exp.apply
"""
RAW_THREAD = """
import _thread, torch
layer = torch.nn.Linear(3, 3)
lock = _thread.allocate_lock()
lock.acquire()
kept = {}
def work():
    kept["y"] = layer(torch.randn(2, 3)).exp()
    INSIDE
    lock.release()
_thread.start_new_thread(work, ())
lock.acquire()
y = kept["y"]
"""
CHILD = """
import multiprocessing, torch
def work():
    y = torch.nn.Linear(3, 3)(torch.randn(2, 3)).exp()
    y.sum().backward()
    (y * 2).sum().backward()
if __name__ == "__main__":
    child = multiprocessing.get_context("METHOD").Process(target=work)
    child.start()
    child.join()
    print("child", child.exitcode)
"""


def run(folder: Path, source: str) -> forked.Run:
    """Run a program under `onegraph run`."""
    (folder / "train.py").write_text(source)
    return forked.run(folder, ["train.py"])


@pytest.fixture(autouse=True)
def _torch(torch_loaded: None) -> None:
    """Every test here forks."""


def test_graph_of_a_raw_thread_stays_unknown(tmp_path: Path) -> None:
    """A thread that `threading` knows nothing of is not recorded, and no line is made up for it."""
    (finding,) = run(tmp_path, RAW_THREAD.replace("INSIDE", "pass") + TWICE).findings
    assert "built" not in finding["sites"]
    assert "built" in finding["unknown"]


def test_backward_in_a_raw_thread_has_its_line(tmp_path: Path) -> None:
    """The engine's calls are seen on every thread."""
    source = RAW_THREAD.replace("INSIDE", "pass").replace(
        "_thread.start", "y = layer(torch.randn(2, 3)).exp()\n_thread.start"
    )
    source = source.replace("    pass\n", "    y.sum().backward()\n").replace('y = kept["y"]\n', "")
    (finding,) = run(tmp_path, source + "(y * 2).sum().backward()\n").findings
    (freed,) = finding["sites"]["freed"]
    assert freed["code"] == "y.sum().backward()"
    assert freed["function"] == "work"


@pytest.mark.parametrize(
    "made",
    [
        "act = torch.jit.script(lambda_)\n",
        "act = torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), x)\n",
    ],
)
def test_torchscript_belongs_to_the_line_that_called_it(made: str, tmp_path: Path) -> None:
    """Lines inside a scripted function or a traced module are not kept."""
    source = (
        "import torch\ndef lambda_(x):\n    return torch.tanh(x).exp()\n"
        f"x = torch.randn(2, 3, requires_grad=True)\n{made}y = act(x)\n{TWICE}"
    )
    (finding,) = run(tmp_path, source).findings
    assert finding["sites"]["built"][0]["code"] == "act(x)"
    assert finding["sites"]["joined"][0]["code"] == "y * 2"
    assert finding["names"][0] == "y"


def test_compiled_region_belongs_to_the_line_that_called_it(tmp_path: Path) -> None:
    """Lines inside a region of torch.compile are not kept."""
    source = (
        "import torch\n@torch.compile(backend='aot_eager')\ndef region(x):\n    y = x.exp()\n"
        "    return y\nx = torch.randn(3, requires_grad=True)\ny = region(x)\n" + TWICE
    )
    (finding,) = run(tmp_path, source).findings
    assert finding["sites"]["built"][0]["code"] == "region(x)"


RECORDED = """
import onegraph
x = torch.randn(3, requires_grad=True)
def fail(make):
    try:
        y = make()
        y.sum().backward()
        (y * 2).sum().backward()
    except RuntimeError as error:
        (finding,) = onegraph.diagnose(error).findings
        print("built" in finding.sites, "built" in finding.unknown)
with onegraph.record():
    fail(lambda: x.exp())
    fail(lambda: early(x))
onegraph.install()
fail(lambda: x.exp())
"""


def test_install_records_no_lines(tmp_path: Path) -> None:
    """`record` knows the line that made a tensor, also by an older alias; `install` does not."""
    (tmp_path / "train.py").write_text(FUNCTION + RECORDED)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["True False", "True False", "False True"]


def test_code_given_on_the_command_line_has_lines() -> None:
    """`onegraph run -c` shows the line of the code that it was given."""
    code = "import torch\ny = torch.randn(3, requires_grad=True).exp()\n" + TWICE
    (finding,) = forked.run(Path.cwd(), [code], ["-c"]).findings
    (built,) = finding["sites"]["built"]
    assert (built["line"], built["code"]) == (2, "torch.randn(3, requires_grad=True).exp()")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_are_not_recorded(method: str, tmp_path: Path) -> None:
    """A process that the program starts by `multiprocessing` fails as it would, unexplained."""
    found = run(tmp_path, CHILD.replace("METHOD", method))
    assert found.out == "child 1\n"
    assert "second time" in found.err
    assert "more: onegraph explain" not in found.err
    assert (found.status, found.findings) == (0, [])
