"""The command line: options, wrong use, saved traces, files that change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests import forked

FAILS = """
import torch
cell = torch.nn.GRUCell(3, 5)
h = torch.zeros(2, 5)
for step in range(3):
    h = cell(torch.randn(2, 3), h)
    h.sum().backward()
"""


def onegraph(folder, *arguments, **environment):
    """Run the command as a shell would."""
    return subprocess.run(
        [sys.executable, "-m", "onegraph", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def failing(tmp_path):
    """A folder with a program whose second step fails."""
    (tmp_path / "train.py").write_text(FAILS)
    return tmp_path


def test_report_comes_after_the_traceback(failing):
    """stderr holds torch's own traceback, unchanged, and then the report."""
    bare = subprocess.run(
        [sys.executable, "train.py"], cwd=failing, capture_output=True, text=True, timeout=120
    )
    run = onegraph(failing, "run", "train.py")
    assert run.returncode == bare.returncode == 1
    assert run.stdout == bare.stdout
    assert run.stderr.startswith(bare.stderr)
    assert "the bridge: `h`" in run.stderr[len(bare.stderr) :]


def test_trace_is_drawn_again_without_torch(failing):
    """`onegraph report` draws the same report from the saved trace, and imports no torch."""
    run = onegraph(failing, "run", "--trace", "t.json", "train.py")
    (failing / "torch.py").write_text("raise ImportError('no torch here')")
    again = onegraph(failing, "report", "t.json")
    assert again.returncode == 0
    assert again.stdout.strip() == run.stderr[run.stderr.index("error: ") :].strip()


@pytest.mark.usefixtures("torch_loaded")
def test_json_report(failing):
    """--json writes the contract's document, with the program's own outcome."""
    run = forked.run(failing, ["train.py", "--lr", "0.1"])
    assert run.report["command"] == ["train.py", "--lr", "0.1"]
    assert run.report["outcome"] == "raised"
    assert run.report["exit_status"] == run.status == 1
    assert run.report["exception"]["type"] == "RuntimeError"
    site = run.findings[0]["sites"]["failed"][0]
    assert (site["file"], site["line"], site["code"]) == ("train.py", 7, "h.sum().backward()")
    assert site["column"] == 4


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize(
    ("ending", "status", "outcome"),
    [("", 0, "finished"), ("raise SystemExit(7)", 7, "finished"), ("1 / 0", 1, "raised")],
)
def test_programs_without_a_fault(tmp_path, ending, status, outcome):
    """Whatever ends a healthy program, its status is its own and the findings are empty."""
    (tmp_path / "p.py").write_text(f"import torch\nprint(torch.ones(2).sum().item())\n{ending}\n")
    run = forked.run(tmp_path, ["p.py"])
    assert (run.status, run.report["outcome"], run.findings) == (status, outcome, [])


@pytest.mark.usefixtures("torch_loaded")
def test_failure_that_the_program_catches(tmp_path):
    """A failing backward that the program catches is still told when it ends."""
    body = textwrap.indent(FAILS, "    ")
    (tmp_path / "p.py").write_text(f"try:\n{body}\nexcept RuntimeError:\n    print('caught')\n")
    run = forked.run(tmp_path, ["p.py"])
    assert (run.status, run.out, run.report["outcome"]) == (0, "caught\n", "finished")
    assert [f["cause"] for f in run.findings] == ["carried-state"]


def test_program_without_torch(tmp_path):
    """A program that never imports torch runs without torch being imported for it."""
    (tmp_path / "p.py").write_text("import sys\nprint('torch' in sys.modules)\n")
    run = onegraph(tmp_path, "run", "--json", "r.json", "p.py")
    assert (run.returncode, run.stdout, run.stderr) == (0, "False\n", "")
    assert json.loads((tmp_path / "r.json").read_text())["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["run", "nope.py"], 2, "can't open file"),
        (["run", "-m", "no_such_module"], 1, "No module named no_such_module"),
        (["run"], 2, "usage: onegraph run"),
        (["run", "--jsn", "x", "p.py"], 2, "usage: onegraph run"),
        (["fly"], 2, "usage: onegraph"),
        ([], 2, "usage: onegraph"),
        (["report", "nope.json"], 2, "cannot read nope.json"),
        (["explain", "nothing-known"], 2, "no page on 'nothing-known'"),
    ],
)
def test_wrong_use(tmp_path, arguments, status, words):
    """Wrong use gets one clear answer on stderr and python's or the usual status."""
    run = onegraph(tmp_path, *arguments)
    assert run.returncode == status
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_syntax_error(tmp_path):
    """A syntax error in the program looks as it does under python."""
    (tmp_path / "p.py").write_text("x = (\n")
    bare = subprocess.run(
        [sys.executable, "p.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    run = onegraph(tmp_path, "run", "p.py")
    assert (run.returncode, run.stderr) == (bare.returncode, bare.stderr)


def test_report_on_a_file_that_is_no_trace(tmp_path):
    """A broken trace is refused with the reason."""
    (tmp_path / "t.json").write_bytes(b"\xff\xfe{")
    run = onegraph(tmp_path, "report", "t.json")
    assert run.returncode == 2
    assert "t.json" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize(
    ("change", "words"),
    [("open(__file__, 'a').write('#')", "has changed since"), ("os.remove(__file__)", "cannot be")],
)
def test_source_that_changes_while_it_runs(tmp_path, change, words):
    """A program whose file changed or vanished while it ran gets a report that says so."""
    lines = FAILS.replace("    h.sum()", f"    if step == 1: {change}\n    h.sum()")
    (tmp_path / "p.py").write_text("import os\n" + lines)
    run = forked.run(tmp_path, ["p.py"])
    assert words in run.err
    assert run.findings[0]["sites"]["failed"][0]["line"] == 9


@pytest.mark.usefixtures("torch_loaded")
def test_unwritable_report_leaves_the_status(failing):
    """A report that cannot be written is a fault of ours: told, and the script's status stands."""
    status, _, err = forked.command(
        failing, ["run", "--json", "/dev/null/no/report.json", "train.py"]
    )
    assert status == 1
    assert "onegraph: the report failed" in err


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("form", ["-c", "-m"])
def test_code_and_modules(failing, form):
    """-c and -m programs are explained like scripts."""
    program = ["-c", FAILS] if form == "-c" else ["-m", "train"]
    run = forked.run(failing, program)
    finding = run.findings[0]
    assert (finding["cause"], finding["names"]) == ("carried-state", ["h"])
    assert finding["sites"]["joined"][0]["code"] == "cell(torch.randn(2, 3), h)"


def test_version():
    """--version -v says what this torch lets us see."""
    run = onegraph(".", "--version", "-v")
    assert run.returncode == 0
    assert run.stdout.splitlines()[0].startswith("onegraph 0.")
    assert "everything is seen" in run.stdout
