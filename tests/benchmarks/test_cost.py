"""The benchmark runs, every table of it. No number is judged here: that is for a quiet machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import programs
from benchmarks.cost import TABLES
from benchmarks.pairs import Estimate, Sample, differences, in_pairs, ratios, timed
from benchmarks.tables import markdown, verdict

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.cost", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_ratio_is_taken_within_a_pair() -> None:
    """A drift of the machine that both halves of a pair share leaves no trace in the ratio."""
    slow = [(Sample(1.0 * k, 2.0 * k), Sample(1.5 * k, 2.2 * k)) for k in (1, 2, 7, 40)]
    found = ratios(slow)
    assert found["wall"].median == pytest.approx(1.5)
    assert (found["cpu"].least, found["cpu"].most) == pytest.approx((1.1, 1.1))
    assert differences(slow[:1])["wall"].median == pytest.approx(0.5)


def test_interval_holds_the_median_and_is_repeatable() -> None:
    """The bootstrap interval encloses the median, lies in the range and needs no luck."""
    values = [1.0, 1.1, 0.9, 1.05, 3.0, 1.02, 0.98]
    found = Estimate.of(values)
    assert found.least <= found.low <= found.median <= found.high <= found.most
    assert found.median == 1.02
    assert found.count == 7
    assert found == Estimate.of(values)


def test_nothing_measured_is_an_error() -> None:
    """An estimate from no pairs is refused."""
    with pytest.raises(ValueError, match="nothing was measured"):
        Estimate.of([])


def test_who_goes_first_alternates() -> None:
    """Bare and watched take turns in going first, equally deep in the stack within a pair."""
    order = []

    def bare(frames: int) -> Sample:
        order.append(("bare", frames))
        return Sample(1, 1)

    def watched(frames: int) -> Sample:
        order.append(("watched", frames))
        return Sample(2, 2)

    assert in_pairs(bare, watched, 3) == [(Sample(1, 1), Sample(2, 2))] * 3
    assert [who for who, _ in order] == ["bare", "watched", "watched", "bare", "bare", "watched"]
    assert order[0][1] == order[1][1] != order[2][1] == order[3][1]


def test_warm_up_is_not_timed_but_run() -> None:
    """The action runs for the warm-up and for the timed turns."""
    calls = []
    timed(lambda: calls.append(0), times=3, warm_up=2)
    assert len(calls) == 5


def test_frames_beneath_are_of_the_kind_asked_for() -> None:
    """The deep columns put the program's own frames beneath a step, or a library's."""

    def files() -> list[str]:
        frame, names = sys._getframe(1), []
        while frame is not None:
            names.append(frame.f_code.co_filename)
            frame = frame.f_back
        return names

    own = programs.under_program_frames(files)
    assert own[: programs.FRAMES] == [programs.__file__] * programs.FRAMES
    step = programs.in_a_library("cnn")
    assert not step.__code__.co_filename.endswith("models.py")
    seen: list[str] = []
    hook = programs.torch.nn.modules.module.register_module_forward_hook(
        lambda *_: seen.extend(files())
    )
    try:
        step()
    finally:
        hook.remove()
    inside = [file for file in seen if "a_library" in file]
    assert inside.count(inside[-1]) >= programs.FRAMES
    assert "site-packages" in inside[0]


def test_tables_are_markdown() -> None:
    """Columns are padded to one width, and a verdict names the target."""
    assert markdown(["a", "bb"], [["1", "2"]]) == "| a | bb |\n| - | -- |\n| 1 | 2  |"
    assert verdict(1.2, 1.3, ".2f") == "≤ 1.30 ok"
    assert verdict(1.31, 1.3, ".2f") == "≤ 1.30 MISSED"


def test_unknown_names_are_refused() -> None:
    """A table that does not exist is a mistake in the command."""
    done = run("--tables", "steps,nothing")
    assert done.returncode == 2
    assert "'nothing' is none of steps, calls" in done.stderr


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_measured(table: str, tmp_path: Path) -> None:
    """With token effort each table is printed and its numbers are written as JSON."""
    file = tmp_path / "cost.json"
    chosen = ["--programs", "ntm", "--columns", "record,install", "--shapes", "chain"]
    done = run("--effort", "token", "--tables", table, "--json", str(file), *chosen)
    assert done.returncode == 0, done.stderr
    assert "| " in done.stdout
    assert "DIED" not in done.stdout
    written = json.loads(file.read_text())
    assert set(written) == {"machine", "effort", table}
    assert written["machine"]["threads"] == 1
    assert written["machine"]["torch"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "nodes"), [("chain", 60_000), ("wide", 60_000), ("total", 10_000)]
)
def test_process_outlives_its_explanation(shape: str, nodes: int) -> None:
    """A graph too deep to be destroyed recursively is explained, and the process goes on.

    Whether the graph or its explanation is dropped last, the status is 0.
    """
    for order in ("graph-last", "explanation-last"):
        command = [sys.executable, "-m", "benchmarks.huge", shape, "record", order, str(nodes)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["cause"] != "none"
