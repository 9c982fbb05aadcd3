"""`onegraph ntm`: what it says, what it leaves on disk, and the statuses it exits with."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from onegraph import cli
from tests import forked

SMALL = [
    *("--preset", "demo", "--steps", "6", "--batch", "2", "--no-tensorboard", "--save-every", "4"),
    *("--set", "model.memory=[6,4]", "--set", "model.hidden_size=5", "--set", "task.longest=3"),
    *("--set", "log_every=2"),
]


@pytest.fixture(scope="session")
def loaded(torch_loaded):
    """Import the extra before the first fork, so that children need not."""
    for name in ("accelerate", "safetensors.torch", "matplotlib.figure"):
        pytest.importorskip(name)
    import onegraph.ntm.training.loop
    import onegraph.ntm.training.plot  # noqa: F401


@pytest.fixture(scope="module")
def made(loaded, tmp_path_factory):
    """The folder of a small run."""
    folder = tmp_path_factory.mktemp("made")
    status, out, err = forked.command(folder, ["ntm", "train", "copy", *SMALL, "--out", "run"])
    assert (status, err.count("\n")) == (0, 1), err
    assert re.fullmatch(r"run: 6 steps, \d+\.\d{3} bits a sequence at the end\n", out)
    return folder / "run"


def fails(folder, arguments, status=2):
    """Run a command that fails with one line and no traceback; return the line."""
    found, out, err = forked.command(folder, ["ntm", *arguments])
    assert (found, out) == (status, ""), err
    assert err.startswith("onegraph: ")
    assert err.count("\n") == 1, err
    return err.removeprefix("onegraph: ").rstrip("\n")


def test_lists_name_everything(loaded, tmp_path):
    """`tasks` and `presets` list each with its options and sources."""
    _, out, _ = forked.command(tmp_path, ["ntm", "tasks"])
    for name in ("copy", "repeat-copy", "associative-recall", "ngrams", "priority-sort"):
        assert re.search(rf"^{name}: .+\.\n    task\.", out, flags=re.MULTILINE)
    status, out, err = forked.command(tmp_path, ["ntm", "presets"])
    assert (status, err) == (0, "")
    assert "1410.5401" in out
    assert "1807.08518" in out
    assert (
        "options:   31,250 steps of batch 32, adam lr 0.001, clip norm 50, loss a sequence" in out
    )


def test_without_an_action_the_usage_is_shown(tmp_path):
    """`onegraph ntm` alone prints its help to stderr and exits with 2."""
    status, out, err = forked.command(tmp_path, ["ntm"])
    assert (status, out) == (2, "")
    assert err.startswith("usage: onegraph ntm")


@pytest.mark.parametrize(
    ("action", "missing"),
    [("train", "accelerate, safetensors, tensorboard"), ("eval", "safetensors"),
     ("plot", "safetensors, matplotlib")],
)  # fmt: skip
def test_a_missing_extra_is_one_line(monkeypatch, capsys, action, missing):
    """Without the extra a command says what to install, and exits with 2."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["ntm", action, "copy"]) == 2
    assert capsys.readouterr().err == (
        f"onegraph: `onegraph ntm {action}` needs {missing}: "
        "pip install '.[ntm]' in a checkout of onegraph\n"
    )


def test_without_tensorboard_a_run_may_do_without(monkeypatch, tmp_path):
    """With --no-tensorboard training asks for no TensorBoard and imports none."""
    pytest.importorskip("accelerate")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else real(name)
    )
    for name in ("onegraph.ntm.training.board", "torch.utils.tensorboard", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["ntm", "train", "copy", *SMALL, "--out", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["copi"], "there is no task 'copi'"),
        (["copy", "--preset", "ngrams-graves"],
         "the preset ngrams-graves is for the task ngrams, not copy"),
        (["copy", "--preset", "x"], "there is no preset 'x'; known are copy, demo, "),
        (["copy", "--steps", "0"], "steps is 0; it must be at least 1"),
        (["copy", "--lr", "-1"], "lr is -1.0; it must be positive"),
        (["copy", "--lr", "nan"], "lr is nan; it must be positive"),
        (["copy", "--seed", "-1"], "seed is -1; it must be from 0"),
        (["copy", "--set", "longest"], "'longest': a setting is written NAME=VALUE"),
        (["copy", "--set", "longest=3"], "there is no option 'longest'"),
        (["copy", "--set", "task.longst=3"],
         "there is no option of the task copy 'longst'; did you mean longest?"),
        (["copy", "--set", "task.longest=3.5"],
         "task.longest is 3.5; it must be a whole number"),
        (["copy", "--set", "task.longest=0"],
         "the task copy cannot be drawn: no number lies between 1 and 0"),
        (["copy", "--set", "model.slots=3"], "there is no option of the model 'slots'"),
        (["copy", "--set", "task.bits=0"],
         "the task copy cannot be drawn: bits is 0; it must be at least 1"),
        (["ngrams", "--set", "task.length=5"],
         "the task ngrams cannot be drawn: length is 5; it must be at least 6"),
        (["copy", "--set", "model.memory=3"],
         "model.memory is 3; it must be [a whole number, a whole number]"),
        (["copy", "--set", "model.memory=[6]"],
         "model.memory is [6]; it must be [a whole number, a whole number]"),
        (["copy", "--set", "model.memory=[100000000,100000]"],
         "the model cannot be made: there is not enough memory"),
        (["copy", "--set", "model.read_heads=true"],
         "model.read_heads is true; it must be a whole number"),
        (["copy", "--set", "model.tanh=yes"], 'model.tanh is "yes"; it must be true or false'),
        (["copy", "--set", "model.clip=abc"],
         'model.clip is "abc"; it must be a number or null'),
        (["copy", "--set", "model.clip=NaN"],
         "the model cannot be made: clip is nan; it must be positive and finite"),
        (["copy", "--set", "model.hidden_size=0"],
         "the model cannot be made: hidden_size is 0; it must be at least 1"),
        (["copy", "--set", "preset=demo"], "preset is no setting; it is given as --preset"),
        (["copy", "--set", "preset=\udcff"], "preset is no setting; it is given as --preset"),
        (["copy", "--set", "task=ngrams"], "task is no setting; it is given as TASK"),
        (["copy", "--set", "model.controller=x"], "the model cannot be made: unknown controller"),
        (["copy", "--set", "clip_norm=big"], 'clip_norm is "big"; it must be a number or null'),
        (["copy", "--set", "optimizer=sgd"],
         'optimizer is "sgd"; it must be one of rmsprop, rmsprop-uncentred, graves, adam'),
    ],
)  # fmt: skip
def test_bad_options_are_one_line_and_make_nothing(loaded, tmp_path, arguments, line):
    """An option that cannot be is told with what could be; no folder is made."""
    told = fails(tmp_path, ["train", *arguments, "--out", "run"])
    assert line in told
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_begun_over_another(made):
    """Training into a run that exists asks for --resume, and leaves it as it is."""
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    told = fails(made.parent, ["train", "copy", *SMALL, "--out", "run"])
    assert told == "run holds a run already; --resume goes on with it"
    told = fails(made.parent, ["train", "copy", "--out", "run", "--resume", "--batch", "3"])
    assert told == "run was begun with batch 2, not 3; leave that out, or begin another run"
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_steps_are_not_taken_back(made):
    """Fewer steps than were taken are refused, and run.json keeps what it held."""
    before = (made / "run.json").read_bytes()
    command = ["train", "copy", "--out", "run", "--resume", "--steps", "5"]
    assert fails(made.parent, command) == "run has 6 steps already; none is taken back"
    assert (made / "run.json").read_bytes() == before


def test_one_process_writes_a_run(made):
    """While a process holds a run another is refused; when it is killed, the run is free."""
    pytest.importorskip("fcntl")
    from onegraph.ntm.training.lock import Lock

    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"1" if Lock(made / "lock").take() else b"0")
        signal.pause()
    os.close(tell)
    command = ["train", "copy", "--out", "run", "--resume"]
    try:
        assert os.read(told, 1) == b"1"
        assert fails(made.parent, command) == "run is being trained by another process"
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    status, _, err = forked.command(made.parent, ["ntm", *command])
    assert status == 0, err


def test_resume_goes_on_and_begins(loaded, tmp_path):
    """--resume begins a run that is not there, goes on to more steps, and rests at the end."""
    command = ["ntm", "train", "copy", *SMALL, "--out", "run", "--resume"]
    for steps in ("3", "6", "6"):
        status, out, err = forked.command(tmp_path, [*command, "--steps", steps])
        assert (status, out.partition(",")[0]) == (0, f"run: {steps} steps"), err
    status, *_ = forked.command(tmp_path, ["ntm", "train", "copy", *SMALL, "--out", "whole"])
    one, two = (
        (tmp_path / name / "checkpoints/step-00000006/model.safetensors").read_bytes()
        for name in ("run", "whole")
    )
    assert one == two


def test_eval_tells_the_bit_error_rate_last(made):
    """`eval` ends with the bit error rate; --json gives the same numbers."""
    asked = ["ntm", "eval", "run", "--length", "4", "--sequences", "20"]
    status, out, err = forked.command(made.parent, asked)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "copy, 20 fresh sequences of 4 vectors, after 6 steps"
    last = re.fullmatch(r"bit error rate: (\d+\.\d{4})% \((\d+) of 640 bits\)", lines[-1])
    assert last
    _, out, _ = forked.command(made.parent, [*asked, "--json"])
    assert json.loads(out)["errors"] == int(last[2])


def test_eval_knows_what_cannot_be_beaten(loaded, tmp_path):
    """For n-grams `eval` tells the Bayes-optimal cost beside the model's."""
    forked.command(
        tmp_path,
        ["ntm", "train", "ngrams", "--steps", "1", "--out", "run", "--no-tensorboard", "--set",
         "task.length=12", "--set", "model.memory=[6,4]"],
    )  # fmt: skip
    _, out, err = forked.command(tmp_path, ["ntm", "eval", "run", "--sequences", "30"])
    found = re.search(r"cost: (\S+) bits a sequence \(the best possible: (\S+)\)", out)
    assert found, err
    assert float(found[2]) < float(found[1])


def test_a_length_that_leaves_nothing_to_score_is_told(loaded, tmp_path):
    """`eval` and `plot` refuse a length at which no bit counts, and one that is no number."""
    forked.command(
        tmp_path,
        ["ntm", "train", "ngrams", "--steps", "1", "--out", "run", "--no-tensorboard", "--set",
         "task.length=12", "--set", "model.memory=[6,4]"],
    )  # fmt: skip
    for action in ("eval", "plot"):
        told = fails(tmp_path, [action, "run", "--length", "3"])
        assert told == "the task ngrams cannot be drawn: length is 3; it must be at least 6"
        _, _, err = forked.command(tmp_path, ["ntm", action, "run", "--length", "abc"])
        assert err.endswith("error: argument --length: 'abc' is no whole number\n")


def test_plot_draws_png_and_svg_alike_each_time(made):
    """`plot` names its six files; they are whole pictures, and the same when drawn again."""
    status, out, err = forked.command(made.parent, ["ntm", "plot", "run"])
    assert (status, err) == (0, "")
    names = [f"run/plots/{name}.{kind}" for name in ("learning-curve", "outputs", "memory")
             for kind in ("png", "svg")]  # fmt: skip
    assert out.split() == names
    files = [made.parent / name for name in names]
    first = [file.read_bytes() for file in files]
    assert all(data.startswith(b"\x89PNG") for data in first[::2])
    assert all(data.rstrip().endswith(b"</svg>") for data in first[1::2])
    assert b"Write weightings" in first[5]
    forked.command(made.parent, ["ntm", "plot", "run", "--out", "again"])
    assert [(made.parent / "again" / file.name).read_bytes() for file in files] == first


@pytest.mark.parametrize("action", ["eval", "plot"])
def test_what_is_no_run_is_told(loaded, tmp_path, action):
    """A missing folder, a foreign one and a damaged one are each one line."""
    assert fails(tmp_path, [action, "none"]) == (
        "none is no run: it has no run.json; `onegraph ntm train` makes one"
    )
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "run.json").write_text('{"name": "other"}')
    assert fails(tmp_path, [action, "foreign"]) == (
        "foreign/run.json was not written by onegraph, or is damaged"
    )
    (foreign / "run.json").write_text('{"format": "onegraph-ntm", "version": 9}')
    assert "has version 9 of the format" in fails(tmp_path, [action, "foreign"])
    (foreign / "run.json").write_text(
        '{"format": "onegraph-ntm", "version": 1, "options": {"task": "copy", "x": 1}}'
    )
    assert "there is no option 'x'" in fails(tmp_path, [action, "foreign"])
    (foreign / "run.json").write_text('{"format": "onegraph-ntm", "version": 1}')
    told = fails(tmp_path, [action, "foreign"])
    assert told == "foreign/run.json is damaged: it holds no options"
    (foreign / "run.json").write_text('{"format": "onegraph-ntm", "options": {"task": "copy"}}')
    told = fails(tmp_path, [action, "foreign"])
    assert told == "foreign/run.json was not written by onegraph, or is damaged"


def test_a_folder_of_something_else_is_left_alone(loaded, tmp_path):
    """A folder that holds other files is not trained into, with --resume or without."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    for more in ([], ["--resume"]):
        told = fails(tmp_path, ["train", "copy", *SMALL, "--out", "thesis", *more])
        assert told == "thesis is not empty and holds no run: chapter.tex is in it"
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


def test_a_path_that_cannot_be_written_is_told(loaded, tmp_path):
    """A run below a file, or on a read-only path, is one line with the reason."""
    (tmp_path / "file").write_text("")
    told = fails(tmp_path, ["train", "copy", *SMALL, "--out", "file/run"], status=1)
    assert re.fullmatch(r"cannot write file/run/?\S*: not a directory; .*", told)


def test_a_file_that_may_not_grow_is_told(loaded, tmp_path):
    """With a real limit on files' sizes a save fails: one line, and nothing half-written stays."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Only the soft limit, so that it can be lifted again; children inherit it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        told = fails(tmp_path, ["train", "copy", *SMALL, "--out", "run"], status=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert re.match(r"cannot write run/checkpoints/\S+/model.safetensors: file too large; ", told)
    assert told.endswith("; there is no checkpoint yet")
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []


def unread():
    """A stream whose reader is gone."""
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w")


def full():
    """A stream onto a full disk."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    return open("/dev/full", "w")


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize("make", [unread, full, lambda: None], ids=["unread", "full", "closed"])
def test_no_run_ends_for_what_it_shows(loaded, monkeypatch, capfd, tmp_path, make, name):
    """Whatever becomes of a stream, training goes on to its end, which is saved."""
    monkeypatch.setattr(sys, name, make())
    status = cli.main(["ntm", "train", "copy", *SMALL, "--out", str(tmp_path / "run")])
    getattr(sys, name).close()
    assert (tmp_path / "run/checkpoints/step-00000006/state.json").exists()
    lost = (make, name) == (full, "stdout")
    assert status == (1 if lost else 0)
    assert capfd.readouterr().err.endswith("stdout: no space left on the disk\n") == lost


def test_a_reader_may_have_seen_enough(loaded, monkeypatch, capfd):
    """A listing whose reader has gone, as `head` goes, ends quietly with 0."""
    monkeypatch.setattr(sys, "stdout", unread())
    assert cli.main(["ntm", "presets"]) == 0
    sys.stdout.close()
    assert capfd.readouterr().err == ""


def test_what_a_stream_cannot_spell_is_escaped(loaded, monkeypatch):
    """A stream of ASCII gets all presets, × as an escape."""
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(["ntm", "presets"]) == 0
    assert rb"128 \xd7 20" in stream.buffer.getvalue()


def test_ctrl_c_before_the_first_step_is_one_line(loaded, monkeypatch, capsys):
    """Ctrl-C while a command is being prepared is one line and status 130."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.util, "find_spec", interrupted)
    assert cli.main(["ntm", "train", "copy"]) == 130
    assert capsys.readouterr().err == "onegraph: interrupted; what was saved before is whole\n"


def test_ctrl_c_saves_and_says_so(loaded, tmp_path):
    """Ctrl-C ends a run with 130 and the checkpoint's name, and --resume goes on from there."""
    command = [
        *(sys.executable, "-m", "onegraph", "ntm", "train", "copy", *SMALL),
        *("--steps", "1000000", "--save-every", "1000000", "--out", "run"),
    ]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    line = child.stderr.readline()
    assert line.startswith("step "), line
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    last = err.splitlines()[-1]
    found = re.fullmatch(
        r"onegraph: interrupted after step ([\d,]+), which is saved in run/checkpoints/step-(\d+); "
        r"the same command with --resume goes on",
        last,
    )
    assert found, err
    step = int(found[1].replace(",", ""))
    assert step == int(found[2]) > 1
    assert "Traceback" not in err
    more = ["ntm", "train", "copy", "--out", "run", "--resume", "--steps", str(step + 1)]
    status, out, err = forked.command(tmp_path, more)
    assert (status, out.partition(",")[0]) == (0, f"run: {step + 1:,} steps".partition(",")[0]), err


def test_bfloat16_trains(loaded, tmp_path):
    """Mixed precision goes through Accelerate and keeps parameters in float32."""
    status, _, err = forked.command(
        tmp_path, ["ntm", "train", "copy", *SMALL, "--precision", "bf16", "--out", "run"]
    )
    assert status == 0, err
    from safetensors.torch import load_file

    found = load_file(tmp_path / "run/checkpoints/step-00000006/model.safetensors")
    assert {str(value.dtype) for value in found.values()} == {"torch.float32"}


@pytest.mark.parametrize("more", [[], ["--window", "2"]])
def test_a_training_run_under_onegraph_run_has_no_finding(loaded, tmp_path, more):
    """`onegraph run` watches a whole training run, windows included, and finds nothing."""
    found = forked.run(
        tmp_path, ["-m", "onegraph", "ntm", "train", "copy", *SMALL, *more, "--out", "run"]
    )
    assert found.status == 0, found.err
    assert found.findings == []
