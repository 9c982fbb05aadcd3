"""The documents: the reports that they show are today's, and their tables name every field."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.pages.running import DOCUMENTS, ROOT, SHOWN, shown

REPORTS = [(path.name, m[1], m[2]) for path in DOCUMENTS for m in SHOWN.finditer(path.read_text())]


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize(("document", "arguments", "text"), REPORTS)
def test_shown_report_is_what_is_printed_today(document: str, arguments: str, text: str) -> None:
    """A document's report is up to date; `python -m tests.pages.regenerate` writes it anew."""
    assert shown(arguments) == text


def test_every_seed_program_is_shown() -> None:
    """Each fault of the fusion controller and the pairwise programs have their report."""
    commands = {arguments for _, arguments, _ in REPORTS}
    faults = {f"examples/fusion_controller.py --fault {fault}" for fault in
              ("memory", "maps", "cached", "optimizer-step")}  # fmt: skip
    pairwise = {"examples/pairwise_blocks.py --layer", "--notes examples/pairwise_blocks.py"}
    pairwise.add("examples/pairwise_retained.py")
    assert faults | pairwise | {"examples/fusion_controller.py"} == commands


def fields(title: str) -> set[str]:
    """The names in the first column of a table of docs/report.md."""
    text = (ROOT / "docs" / "report.md").read_text("utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.usefixtures("torch_loaded")
def test_report_page_names_every_field_of_the_json() -> None:
    """docs/report.md and the JSON that is written have the same fields."""
    report = forked.run(ROOT, ["examples/fusion_controller.py"]).report
    assert report is not None
    (finding,) = report["findings"]
    (place, *_), (remedy, *_) = finding["sites"]["built"], finding["remedies"]
    assert fields("The document") == set(report)
    assert fields("A finding") == set(finding)
    assert fields("A place") == set(place)
    assert fields("A remedy") == set(remedy)
    assert set(finding["sites"]) <= fields("Roles")
    assert set(place["frames"][0]) == {"file", "line", "function"}
    assert set(finding["shared"]) == {"nodes", "parameters"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file of the project leads to one, and to a heading that it has."""
    for target in re.findall(r"\]\(([^)#]+?)(?:#[\w-]+)?\)", path.read_text("utf-8")):
        assert (path.parent / target).exists() or target.startswith("https://")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_are_named_exist(path: Path) -> None:
    """A file or folder of the project that a document names is there."""
    text = path.read_text("utf-8")
    for name in re.findall(r"`((?:tests|docs|examples|benchmarks|src)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name


OPERATIONS = """
import torch
x = torch.randn(4, requires_grad=True)
chosen = torch.tensor([0, 2])
for name, operation in {
    "stack": lambda: torch.stack([x, x]), "repeat": lambda: x.repeat(2, 1),
    "permute": lambda: x.expand(2, 4).permute(1, 0), "concatenate": lambda: torch.cat([x, x]),
    "slice": lambda: x[1:3], "sum": lambda: x.sum(),
    "times four": lambda: x * 4, "index": lambda: x[chosen],
}.items():
    y = operation()
    y.sum().backward()
    try:
        y.sum().backward()
        print(name, "runs")
    except RuntimeError:
        print(name, "fails")
"""


@pytest.mark.usefixtures("torch_loaded")
def test_operations_that_save_nothing(tmp_path: Path) -> None:
    """docs/pairwise-blocks.md is right about what saves a tensor and what does not."""
    (tmp_path / "train.py").write_text(OPERATIONS)
    told = dict(line.rsplit(" ", 1) for line in forked.run(tmp_path, ["train.py"]).out.splitlines())
    assert [name for name, how in told.items() if how == "fails"] == ["times four", "index"]
    assert len(told) == 8


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("fault", ["memory", "maps", "cached", "optimizer-step"])
def test_retaining_repairs_no_fault(fault: str, tmp_path: Path) -> None:
    """docs/fusion-controller.md: with any of the faults it ends in the in-place error."""
    text = (ROOT / "examples" / "fusion_controller.py").read_text("utf-8")
    assert text.count(".backward()") >= 2
    retained = text.replace(".backward()", ".backward(retain_graph=True)")
    (tmp_path / "train.py").write_text(retained)
    found = forked.run(tmp_path, ["train.py", "--fault", fault])
    assert found.status == 1
    assert "modified by an inplace operation" in found.err


TRAIN = """
import torch
turns = iter((False, True))
def train():
    y = torch.randn(3, requires_grad=True).exp()
    y.sum().backward()
    if next(turns):
        (y * 2).sum().backward()
"""


def test_program_in_the_readme_runs(tmp_path: Path) -> None:
    """The README's use in a program is right: it prints the cause and the names."""
    text = (ROOT / "README.md").read_text("utf-8").partition("## In a program")[2]
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "train.py").write_text(TRAIN + block)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "several-losses-one-graph ('y',)\n"
