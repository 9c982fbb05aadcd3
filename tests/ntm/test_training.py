"""Training: what a run comes to is decided by its options alone, whatever happens to it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("accelerate")
pytest.importorskip("safetensors")

from onegraph import cli
from onegraph.ntm import NTM, tasks
from onegraph.ntm.training import checkpoint, stopping
from onegraph.ntm.training.checkpoint import Run
from onegraph.ntm.training.errors import RunError, Stopped
from onegraph.ntm.training.evaluate import evaluate, generator, trace, trained
from onegraph.ntm.training.loop import train
from onegraph.ntm.training.optimizers import GravesRMSprop
from onegraph.ntm.training.options import Options, from_json, make_model, make_task
from onegraph.ntm.training.presets import PRESETS
from onegraph.ntm.training.progress import Bar, Lines, display

TINY = Options(
    task="copy",
    steps=12,
    batch=3,
    lr=1e-3,
    clip_norm=1.0,
    task_options={"bits": 3, "longest": 3},
    model={"memory": [6, 4], "hidden_size": 5},
    save_every=5,
    log_every=2,
)


def go(folder, options=TINY, **rest):
    """Train a run in this process, from where it is or from the beginning."""
    return train(
        Run(folder), lambda run: options, io.StringIO(), **{"board": False, "cpu": True, **rest}
    )


def curve(folder):
    """The curve of a run's newest checkpoint."""
    found, complaints = Run(folder).load()
    assert found is not None
    assert complaints == []
    return found.extra["curve"]


def tensors(folder):
    """The bytes of a run's newest tensors."""
    latest = Run(folder).latest()
    return [(latest / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer")]


def test_equal_options_give_equal_runs(tmp_path):
    """Two runs of the same options agree bit for bit, and another seed gives another run."""
    for name in "ab":
        go(tmp_path / name)
    go(tmp_path / "c", dataclasses.replace(TINY, seed=2))
    assert curve(tmp_path / "a") == curve(tmp_path / "b") != curve(tmp_path / "c")
    assert tensors(tmp_path / "a") == tensors(tmp_path / "b")
    assert [point["step"] for point in curve(tmp_path / "a")] == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize("optimizer", ["rmsprop", "rmsprop-uncentred", "graves", "adam"])
def test_a_run_in_parts_is_the_run_in_one(tmp_path, optimizer):
    """More steps asked for later give the same as asked for at once, whatever the rate does."""
    whole = dataclasses.replace(
        TINY, optimizer=optimizer, lr_end=TINY.lr / 10, lr_hold=2, lr_steps=9
    )
    go(tmp_path / "whole", whole)
    for steps in (1, 7, 12):
        go(tmp_path / "parts", dataclasses.replace(whole, steps=steps))
    assert curve(tmp_path / "parts") == curve(tmp_path / "whole")
    assert tensors(tmp_path / "parts") == tensors(tmp_path / "whole")


def test_kill_9_at_any_moment(tmp_path):
    """A run killed 20 times at random moments ends with the curve of one that never was."""
    options = dataclasses.replace(TINY, steps=160, save_every=4)
    go(tmp_path / "whole", options)
    moments = random.Random(0)
    kills = 0
    while kills < 20:
        child = os.fork()
        if child == 0:
            try:
                go(tmp_path / "killed", options, board=True)
            finally:
                os._exit(0)
        # Short enough that the run has many lives; a moment may fall before its first save.
        time.sleep(moments.uniform(0.01, 0.12))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            # It came to its end before; there is nothing left to kill.
            break
        kills += 1
        Run(tmp_path / "killed").load()  # Whole, or not there yet.
    assert kills == 20
    go(tmp_path / "killed", options)
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")
    assert tensors(tmp_path / "killed") == tensors(tmp_path / "whole")
    names = sorted(path.name for path in (tmp_path / "killed" / "checkpoints").iterdir())
    assert names == ["latest", "step-00000156", "step-00000160"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "replace", "mkdir"])
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, call):
    """Wherever in saving the disk is full: one line says so, and the last checkpoint stands."""
    go(tmp_path, dataclasses.replace(TINY, steps=5))
    before = curve(tmp_path)
    for nth in range(12):
        left = [nth]
        with monkeypatch.context() as patch:
            fail_after(patch, call, left)
            told = None
            try:
                go(tmp_path, dataclasses.replace(TINY, steps=10))
            except RunError as error:
                told = error
        if told is None:
            break
        assert re.search("no space left on the disk; the last good checkpoint is", str(told))
        assert told.status == 1
        assert curve(tmp_path)[: len(before)] == before
        assert not list((tmp_path / "checkpoints").glob(".partial*"))
    else:
        pytest.fail("the disk was never big enough")
    assert nth > 0
    assert curve(tmp_path)[-1]["step"] == 10


def fail_after(patch, call, left):
    """Let a system call of the checkpoints fail once it was made a number of times."""

    def wrap(real):
        def wrapped(*args, **kwargs):
            if left[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))
            left[0] -= 1
            return real(*args, **kwargs)

        return wrapped

    if call == "write":
        patch.setattr(checkpoint, "_write_file", wrap(checkpoint._write_file))
    elif call == "mkdir":
        patch.setattr(Path, "mkdir", wrap(Path.mkdir))
    else:
        patch.setattr(os, call, wrap(getattr(os, call)))


def test_a_broken_checkpoint_is_told_and_the_one_before_goes_on(tmp_path):
    """One flipped bit is found; the run goes on from the checkpoint before, to the same end."""
    go(tmp_path / "whole")
    go(tmp_path / "run", dataclasses.replace(TINY, steps=10))
    file = Run(tmp_path / "run").latest() / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    found, complaints = Run(tmp_path / "run").load()
    assert found.step == 5
    assert complaints == [
        f"the checkpoint {file.parent} is broken: model.safetensors is not as it was written"
    ]
    go(tmp_path / "run")
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


@pytest.mark.parametrize("text", [None, '{"checkpoints": []}'])
def test_checkpoints_outlive_the_file_that_names_them(tmp_path, text):
    """Without a name in `latest` a run goes on from the newest whole checkpoint, and says so."""
    go(tmp_path / "whole")
    go(tmp_path / "run", dataclasses.replace(TINY, steps=10))
    latest = tmp_path / "run" / "checkpoints" / "latest"
    newest = Run(tmp_path / "run").latest()
    latest.unlink() if text is None else latest.write_text(text)
    shutil.copytree(newest, newest.with_name("step-00000011"))
    (newest.with_name("step-00000011") / "model.safetensors").unlink()
    found, complaints = Run(tmp_path / "run").load()
    assert found.step == 10
    assert [line.partition(":")[0] for line in complaints] == [
        f"{latest} names no checkpoint",
        f"the checkpoint {newest.with_name('step-00000011')} is broken",
    ]
    stream = io.StringIO()
    train(Run(tmp_path / "run"), lambda run: TINY, stream, board=False, cpu=True)
    assert f"{latest} names no checkpoint; going on from step 10\n" in stream.getvalue()
    steps = sorted(path.name for path in latest.parent.glob("step-*"))
    assert steps == [f"step-{step:08d}" for step in (5, 10, 11, 12)]
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


def test_checkpoints_that_are_not_named_and_not_whole_stay(tmp_path):
    """Without a name in `latest` and without a whole checkpoint a run refuses to begin anew."""
    go(tmp_path)
    (tmp_path / "checkpoints" / "latest").unlink()
    for number, file in enumerate(sorted(tmp_path.glob("checkpoints/*/state.json"))):
        file.write_text("{}") if number else file.unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunError, match="names no checkpoint; no whole one is left"):
        go(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["\0", "..", 3, "step-1/../../x"])
def test_a_name_that_is_none_is_damage(tmp_path, name):
    """What `latest` names must be a checkpoint's folder, or `latest` is damaged."""
    go(tmp_path, dataclasses.replace(TINY, steps=1))
    entry = {"name": name, "sha256": "0"}
    (tmp_path / "checkpoints" / "latest").write_text(json.dumps({"checkpoints": [entry]}))
    with pytest.raises(RunError, match=r"latest: it is damaged$"):
        go(tmp_path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"optimizer": "adam"}, "it was written by another optimizer"),
        ({"optimizer": "graves"}, "it was written by another optimizer"),
        ({"lr": 0.1}, "it was written with lr 0.001, not 0.1"),
        ({"model": {**TINY.model, "hidden_size": 6}}, ".*size mismatch.*"),
    ],
)
def test_options_changed_by_hand_do_not_fit_the_checkpoint(tmp_path, changes, why):
    """A checkpoint of another optimiser, learning rate or model is refused in one line."""
    go(tmp_path, dataclasses.replace(TINY, steps=5))
    with pytest.raises(RunError, match=f"the checkpoint does not fit the run's options: {why}$"):
        go(tmp_path, dataclasses.replace(TINY, **changes))


def test_a_run_is_written_by_one_at_a_time(tmp_path):
    """A run that is held by another is refused; what held it lets go at its end."""
    pytest.importorskip("fcntl")
    go(tmp_path, dataclasses.replace(TINY, steps=5))
    other = Run(tmp_path)
    other.begin(dataclasses.replace(TINY, steps=5))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"is being trained by another process$"):
        go(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    other.end()
    go(tmp_path)


def test_when_no_checkpoint_is_whole_the_run_says_so(tmp_path):
    """Without a whole checkpoint the run stops with one line, and touches nothing."""
    go(tmp_path)
    for file in tmp_path.glob("checkpoints/*/state.json"):
        file.write_text("{")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunError, match=r"state\.json is not as it was written; no whole one"):
        go(tmp_path, dataclasses.replace(TINY, steps=20))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.distributed
@pytest.mark.parametrize(
    "window",
    [
        [],
        # Learned, the initial state is in the first window's graph alone.
        ["--window", "3", *(f"--set=model.{name}_init=learned"
                            for name in ("memory", "weighting", "read"))],
    ],
)  # fmt: skip
def test_two_processes_are_one_on_the_joined_batch(tmp_path, window):
    """In float64 two processes give the curve and parameters of one within 1e-6."""
    command = [
        *("ntm", "train", "copy", "--preset", "demo", "--steps", "12", "--batch", "5"),
        *("--dtype", "float64", "--set", "log_every=1", "--set", "model.memory=[8,6]"),
        *("--set", "model.hidden_size=8", "--set", "task.longest=5", "--set", "task.mixed=true"),
        *("--no-tensorboard", *window),
    ]
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert cli.main([*command, "--out", str(tmp_path / "one")]) == 0
    done = subprocess.run(
        [
            *(str(binaries / "torchrun"), "--nproc-per-node", "2", "--standalone", "--no-python"),
            *(str(binaries / "onegraph"), *command, "--out", str(tmp_path / "two")),
        ],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, two = (Run(tmp_path / name).load()[0] for name in ("one", "two"))
    assert len(one.extra["curve"]) == 12
    for before, after in zip(one.extra["curve"], two.extra["curve"], strict=True):
        assert before == pytest.approx(after, abs=1e-6, rel=0)
    for name, value in one.model.items():
        torch.testing.assert_close(two.model[name], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_so(tmp_path, monkeypatch, number):
    """A signal ends a run after the step at hand, saved, and it goes on to the same end."""
    go(tmp_path / "whole")
    # Under `nohup` the tests inherit one that is ignored.
    monkeypatch.setattr(stopping, "_handled", lambda: [number])
    real = tasks.bit_errors

    def counted(*args):
        os.kill(os.getpid(), number)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "bit_errors", counted)
        with pytest.raises(Stopped, match=r"after step 1, which is saved in .*step-00000001") as e:
            go(tmp_path / "run")
    assert e.value.status == 128 + number
    go(tmp_path / "run")
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")


def test_a_hangup_that_is_ignored_stays_ignored():
    """Under `nohup` a closed terminal ends no run; elsewhere it does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping.Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
        assert signals.received == 0
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stopping.Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
        assert signals.received == signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


def test_numbers_that_are_none_stop_the_run(tmp_path, monkeypatch):
    """A loss that is not finite: the step, the first bad tensor, the last good checkpoint."""
    go(tmp_path, dataclasses.replace(TINY, steps=5))
    real = tasks.loss
    left = [2]

    def spoilt(logits, batch):
        left[0] -= 1
        return real(logits, batch) * (math.nan if left[0] < 0 else 1)

    monkeypatch.setattr(tasks, "loss", spoilt)
    with pytest.raises(RunError) as caught:
        go(tmp_path)
    assert str(caught.value) == (
        "step 8 came to numbers that are not finite, first in the loss; "
        f"the last good checkpoint is {tmp_path / 'checkpoints' / 'step-00000005'}"
    )
    assert caught.value.status == 1
    assert Run(tmp_path).load()[0].step == 5


def test_an_explosion_is_never_saved(tmp_path):
    """With an absurd learning rate a run stops by itself, and all that is saved is finite."""
    wild = dataclasses.replace(TINY, lr=1e38, save_every=1)
    with pytest.raises(RunError, match="not finite"):
        go(tmp_path, wild)
    found, _ = Run(tmp_path).load()
    assert all(bool(value.isfinite().all()) for value in found.model.values())


def spoilt(module, inputs, output):
    """A hook that makes what a module returns no number."""
    return output * math.nan


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda model, x: x.fill_(math.inf), "inputs"),
        (lambda model, x: model.cell.heads.bias.data.fill_(math.nan),
         "the parameter cell.heads.bias"),
        (lambda model, x: model.cell.heads.register_forward_hook(spoilt),
         "state.weightings at time step 0"),
        (lambda model, x: model.output.register_forward_hook(spoilt), "the output"),
    ],
)  # fmt: skip
def test_the_first_bad_tensor_is_named(spoil, name):
    """Tensors are looked at in the order of computing, and the first that is not finite is told."""
    torch.manual_seed(0)
    model = NTM(3, 2, memory=(5, 4), hidden_size=4)
    x = torch.rand(3, 2, 3) + 1
    assert stopping.first_bad(model, x, 1.0) is None
    spoil(model, x)
    assert stopping.first_bad(model, x, 1.0) == name


def test_windows_see_what_the_whole_sequence_sees(tmp_path):
    """Cutting the graph leaves a step's loss as it was; the gradient alone is shorter."""
    cut = dataclasses.replace(TINY, window=2, log_every=1, steps=3, dtype="float64")
    go(tmp_path / "cut", cut)
    go(tmp_path / "whole", dataclasses.replace(cut, window=None))
    first, whole = curve(tmp_path / "cut")[0], curve(tmp_path / "whole")[0]
    assert first["loss"] == pytest.approx(whole["loss"], abs=1e-12)
    assert curve(tmp_path / "cut")[-1] != curve(tmp_path / "whole")[-1]


def test_the_optimiser_of_graves_2013():
    """Three steps of GravesRMSprop are equations 38 to 45 in plain arithmetic."""
    weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = GravesRMSprop([weight], lr=0.1)
    value, n, m, change = 2.0, 0.0, 0.0, 0.0
    for _ in range(3):
        optimizer.zero_grad()
        (weight**2).sum().backward()
        optimizer.step()
        slope = 2 * value
        n, m = 0.95 * n + 0.05 * slope**2, 0.95 * m + 0.05 * slope
        change = 0.9 * change - 0.1 * slope / math.sqrt(n - m**2 + 1e-4)
        value += change
        assert weight.item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_whole(name):
    """Each preset names its source, survives JSON, and makes a task and a model that fit."""
    preset = PRESETS[name]
    assert preset.name == name
    assert "arXiv:" in preset.source or name == "demo"
    assert preset.published
    options = from_json(json.loads(json.dumps(preset.options.to_json())))
    assert options == preset.options
    task = make_task(options)
    model = make_model(options, task)
    batch = task.draw(1, generator(0, "test"))
    assert model(batch.inputs[:3])[0].shape == (3, 1, task.output_size)


def test_evaluation_counts_what_the_tasks_count(tmp_path):
    """An untrained model gets half the bits wrong at one bit each; equal seeds count equally."""
    go(tmp_path, dataclasses.replace(TINY, steps=1))
    model, options, step, _, _ = trained(Run(tmp_path))
    found = evaluate(model, options, step, length=5, sequences=70, batch=32)
    assert (found.length, found.sequences, found.bits) == (5, 70, 70 * 5 * 3)
    assert found.cost == pytest.approx(15, rel=0.05)
    assert found.rate == pytest.approx(0.5, abs=0.06)
    again = evaluate(model, options, step, length=5, sequences=70, batch=32)
    assert again == found
    assert evaluate(model, options, step, sequences=4).length == 3


def test_a_trace_is_what_the_model_computes():
    """Following a sequence step by step gives the model's own outputs; weightings sum to heads."""
    options = dataclasses.replace(TINY, model={**TINY.model, "read_heads": 2})
    task = make_task(options)
    model = make_model(options, task)
    found = trace(model, task)
    expected = model(found.batch.inputs)[0].sigmoid()[:, 0]
    torch.testing.assert_close(found.outputs, expected.detach())
    steps = len(found.batch.inputs)
    assert found.adds.shape == found.reads.shape == (steps, 4)
    torch.testing.assert_close(found.read_weightings.sum(1), torch.full((steps,), 2.0))
    torch.testing.assert_close(found.write_weightings.sum(1), torch.ones(steps))
    assert not model.cell.heads._forward_hooks


def test_tensorboard_is_told(tmp_path):
    """The event files hold every point of the curve, and pictures of memory and weightings."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    go(tmp_path, board=True)
    seen = set()
    for file in (tmp_path / "tensorboard").iterdir():
        for event in loader.EventFileLoader(str(file)).Load():
            seen |= {(value.tag, event.step) for value in event.summary.value}
    for step in range(2, 13, 2):
        for name in ("loss", "bits_per_sequence", "bit_error_rate", "steps_per_second"):
            assert (f"train/{name}", step) in seen
    for name in ("memory", "weightings/read", "weightings/write"):
        assert {(name, step) for step in (5, 10, 12)} <= seen


def test_a_board_that_cannot_be_written_is_told_once(tmp_path, capfd):
    """When TensorBoard's file may not grow, an error says so, and no thread prints its own."""
    pytest.importorskip("tensorboard")
    resource = pytest.importorskip("resource")
    from onegraph.ntm.training.board import Board

    names = ("step", "loss", "bits_per_sequence", "bit_error_rate", "gradient_norm")
    board = Board(tmp_path, 0)

    def fill():
        for _ in range(100):
            board.point(dict.fromkeys(names, 1.0), 1.0)
            board.writer.flush()

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            fill()
        with contextlib.suppress(OSError):
            board.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capfd.readouterr().err == ""


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        """Yes."""
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch):
    """Both tell rate, loss and bits a sequence; no line holds an escape sequence."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for stream, kind in ((Terminal(), Bar), (io.StringIO(), Lines)):
        shown = display(stream, 0, 10)
        assert type(shown) is kind
        with shown:
            shown.show(10, 0.25, 3.5)
            shown.say("a [word]")
        text = stream.getvalue()
        assert ("\x1b" in text) == (kind is Bar)
        assert re.search(r"/s", text)
        assert "loss 0.25" in text
        assert re.search(r"3\.50+ bits/seq", text)
        assert "a [word]" in text
