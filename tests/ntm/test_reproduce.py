"""Studies of the published results stop anywhere and go on; their table says what they came to."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from onegraph.cli import main
from onegraph.ntm.training import reproduce
from onegraph.ntm.training.errors import Diverged
from onegraph.ntm.training.evaluate import sized
from onegraph.ntm.training.options import make_task
from onegraph.ntm.training.reproduce import Size, Study

SMALL = Study(
    *("copy", "demo", 2, 12, 4), (Size(2, cost=0.0), Size(3)), baseline_steps=8, hidden_size=8
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few sequences a look."""
    monkeypatch.setattr(reproduce, "LOOKED", 4)
    monkeypatch.setattr(reproduce, "CONFIRMED", 8)
    monkeypatch.setattr(reproduce, "MEASURED", 8)


def without_times(found):
    """A study's results, but for how long they took."""
    looks = [{**look, "seconds": None} for look in found["looks"]]
    return {**found, "looks": looks}


def silent(line):
    """Tell nobody."""


def test_a_study_that_was_stopped_comes_to_the_same(tmp_path):
    """A study that dies after any look and is called again has the results of a whole one."""

    def die(line):
        raise KeyboardInterrupt

    whole = reproduce.study(SMALL, 1, tmp_path / "whole", silent)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            reproduce.study(SMALL, 1, tmp_path / "parts", die)
    parts = reproduce.study(SMALL, 1, tmp_path / "parts", silent)
    assert without_times(parts) == without_times(whole)
    assert [look["step"] for look in whole["looks"]] == [4, 8, 12]
    assert not whole["reached"]


def test_what_is_done_is_not_done_again(tmp_path):
    """A finished study is read and takes no step."""
    first = reproduce.study(SMALL, 1, tmp_path, silent)
    assert reproduce.study(SMALL, 1, tmp_path, pytest.fail) == first
    beside = reproduce.baseline(SMALL, tmp_path, silent)
    assert reproduce.baseline(SMALL, tmp_path, pytest.fail) == beside


def test_a_study_ends_at_its_goal(tmp_path):
    """It ends at the first look at which all that must be so is so."""
    easy = dataclasses.replace(SMALL, sizes=(Size(2, cost=1000.0),))
    found = reproduce.study(easy, 1, tmp_path, silent)
    assert [look["step"] for look in found["looks"]] == [4]
    assert found["reached"]


def test_a_study_that_diverges_is_a_result(tmp_path, monkeypatch):
    """A run that comes to numbers that are none ends its study, measured where it last was good."""

    def diverge(run, prepare, *rest, **options):
        if prepare(run).steps > 4:
            raise Diverged("not finite")
        return train(run, prepare, *rest, **options)

    train = reproduce.train
    monkeypatch.setattr(reproduce, "train", diverge)
    found = reproduce.study(SMALL, 1, tmp_path, silent)
    assert found["diverged"] == "not finite"
    assert [look["step"] for look in found["looks"]] == [4]
    assert found["measured"][0]["step"] == 4
    assert not found["reached"]
    assert reproduce.study(SMALL, 1, tmp_path, pytest.fail) == found


def test_the_measurement_is_of_other_sequences_than_the_looks(tmp_path):
    """What decides when to stop is not what is reported."""
    found = reproduce.study(SMALL, 1, tmp_path, silent)
    assert found["looks"][-1]["costs"][0] != found["measured"][0]["cost"]


def test_the_table_counts_seeds_and_gives_medians(tmp_path):
    """Each row says how many seeds reached the goal, after how many sequences, and the costs."""
    for seed, sequences in ((1, 4000), (2, 6000), (3, None)):
        looks = [
            {"sequences": 2000, "seconds": 4.0, "seen": seed == 1},
            {"sequences": sequences or 9000, "seconds": 6.0, "seen": sequences is not None},
        ]
        measured = [
            {"cost": cost, "errors": 1, "bits": 100, "bayes": None} for cost in (0.01 * seed, 2.0)
        ]
        path = tmp_path / f"copy-{seed}" / "study.json"
        path.parent.mkdir()
        path.write_text(
            json.dumps({"looks": looks, "reached": sequences is not None, "measured": measured})
        )
    line = reproduce.table([SMALL], tmp_path).splitlines()[-1]
    assert line == (
        "| copy | NTM | 2 of 3 | 4,000 (2,000 to 6,000); 5,000 (4,000 to 6,000) | 10 | "
        "2: 0.020 (1 of 100); 3: 2.000 (1 of 100) |"
    )


def test_the_command_does_all_of_it(tmp_path, monkeypatch, capsys):
    """The command trains, draws and prints the table; a second call takes no step."""
    monkeypatch.setattr(reproduce, "STUDIES", (SMALL,))
    arguments = ["ntm", "reproduce", "--out", str(tmp_path)]
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert "seed 2: 48 sequences" in first.err
    assert "| copy | LSTM, 1 × 8 |" in first.out
    assert (tmp_path / "results.md").read_text() == first.out
    assert (tmp_path / "pictures" / "copy" / "memory.png").exists()
    assert main(arguments) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert second.err == ""


def test_an_unknown_row_is_named(capsys):
    """A row that does not exist is refused, with those that do."""
    assert main(["ntm", "reproduce", "--only", "cpoy"]) == 2
    assert "there is no row 'cpoy'; known are 'copy', " in capsys.readouterr().err


@pytest.mark.parametrize("row", reproduce.STUDIES, ids=lambda row: row.name)
def test_every_row_can_begin(row):
    """Each row's preset and sizes fit its task, and its looks divide its steps."""
    options = row.options(1)
    assert options.steps % row.every == row.baseline_steps % row.every == 0
    for size in row.sizes:
        at, _, _ = sized(options, size.length, size.repeats)
        assert make_task(at).draw(1, torch.Generator().manual_seed(0)).mask.any()
