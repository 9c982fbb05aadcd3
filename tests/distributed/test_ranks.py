"""Several processes: each rank tells its own story, in one piece."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
BIN = Path(sys.executable).parent


def launch(arguments, folder):
    """Run a command on the programs; return what it wrote to stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(PROGRAMS)
    done = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    return done.stderr


def check(folder, stderr, file):
    """Both ranks' reports stand, whole and in JSON."""
    for rank in (0, 1):
        report = json.loads((folder / f"out.{rank}.json").read_text())
        assert report["process"]["rank"] == rank
        (finding,) = report["findings"]
        assert (finding["cause"], finding["names"][0]) == ("carried-state", "hidden")
        assert Path(finding["sites"]["built"][0]["file"]).name == file
    texts = re.findall(r"^error \(rank [01]\).*?^more: onegraph explain carried-state$",
                       stderr, flags=re.DOTALL | re.MULTILINE)  # fmt: skip
    assert len(texts) == 2
    first, second = (re.sub(r"rank [01]", "rank", text) for text in texts)
    assert first == second


@pytest.mark.distributed
@pytest.mark.parametrize("form", ["script", "module"])
def test_torchrun(tmp_path, form):
    """Under torchrun each rank's report names its rank and outputs do not mix."""
    target = [str(PROGRAMS / "ddp.py")] if form == "script" else ["-m", "ddp"]
    stderr = launch(
        [
            *("torchrun", "--nproc-per-node", "2", "--standalone", "--no-python"),
            *("onegraph", "run", "--json", "out.{rank}.json", *target),
        ],
        tmp_path,
    )
    check(tmp_path, stderr, "ddp.py")


@pytest.mark.distributed
def test_spawned_ranks(tmp_path):
    """Ranks that mp.spawn starts are recorded too, and the parent has a report of its own."""
    stderr = launch(
        ["onegraph", "run", "--json", "out.{rank}.json", str(PROGRAMS / "spawned.py")], tmp_path
    )
    check(tmp_path, stderr, "spawned.py")
    parent = json.loads((tmp_path / "out.main.json").read_text())
    assert parent["exception"]["type"] == "ProcessRaisedException"
    assert parent["findings"] == []


@pytest.mark.distributed
def test_primitives_on_two_ranks(tmp_path):
    """Blocks and windows on two ranks give one process's gradients, with one reduction of each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [
            *("torchrun", "--nproc-per-node", "2", "--standalone"),
            str(PROGRAMS / "short_lived.py"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert {f"rank {rank}: the same" in done.stdout for rank in (0, 1)} == {True}
