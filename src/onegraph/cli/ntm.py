"""`onegraph ntm`: train a Neural Turing Machine, measure it, draw what its memory does."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onegraph.ntm.training.checkpoint import Run
    from onegraph.ntm.training.options import Options

NAME = "ntm"
HELP = "train, evaluate and draw Neural Turing Machines"

# What each command needs of the extra `ntm`.
_NEEDS = {
    "train": ("accelerate", "safetensors", "tensorboard"),
    "eval": ("safetensors",),
    "plot": ("safetensors", "matplotlib"),
    "reproduce": ("accelerate", "safetensors", "matplotlib"),
}
# Options of `train` that are options of the run; None: the preset decides, or the run as it is.
_DIRECT = ("steps", "seed", "batch", "lr", "window", "dtype", "precision", "save_every")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their options."""
    parser.set_defaults(usage=parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")

    def action(name: str, words: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=words, description=words, allow_abbrev=False)
        sub.set_defaults(parser=sub)
        return sub

    _train_arguments(action("train", "train a model, or go on training it"))
    sub = action("eval", "count the bit errors of a trained model on fresh sequences")
    sub.add_argument("run", metavar="RUN", help="the folder of a run")
    _length_arguments(sub)
    sub.add_argument("--sequences", type=_positive, default=640, help="how many (640)")
    sub.add_argument("--seed", type=int, default=0, help="decides the sequences (0)")
    sub.add_argument("--json", action="store_true", help="print the result as JSON")
    sub = action("plot", "draw the learning curve, the outputs, and what the memory does")
    sub.add_argument("run", metavar="RUN", help="the folder of a run")
    _length_arguments(sub)
    sub.add_argument("--seed", type=int, default=0, help="decides the sequence that is drawn (0)")
    sub.add_argument("--out", metavar="FOLDER", help="where the pictures go (RUN/plots)")
    sub = action("build", "build the C++ kernel, with which training is ten times as fast")
    sub.add_argument("--limit", type=_positive, default=600, metavar="SECONDS",
                     help="after which a compiler is ended (600)")  # fmt: skip
    sub = action("reproduce", "run the published results again, or what is left of that")
    sub.add_argument("--out", default="runs/reproduce", metavar="FOLDER",
                     help="where all lies; a second call goes on (runs/reproduce)")  # fmt: skip
    sub.add_argument("--only", action="append", metavar="ROW", help="one of the tasks (repeatable)")
    sub.add_argument("--processes", type=_positive, default=1, help="how many at a time (1)")
    sub.add_argument("--no-baselines", action="store_true", help="leave the LSTMs out")
    action("tasks", "list the tasks")
    action("presets", "list the presets, and the published results they stand for")


def _train_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("task", metavar="TASK", help="what to learn; `onegraph ntm tasks` lists them")
    sub.add_argument("--out", metavar="RUN", help="the folder of the run (runs/PRESET-SEED)")
    sub.add_argument("--preset", help="where options begin; the task's first by default")
    sub.add_argument("--resume", action="store_true", help="go on where the run ended, if it began")
    sub.add_argument("--steps", type=int, help="how many steps in all")
    sub.add_argument("--seed", type=int, help="decides the first parameters and every batch")
    sub.add_argument("--batch", type=int, help="sequences a step, over all processes")
    sub.add_argument("--lr", type=float, help="the learning rate")
    sub.add_argument("--window", type=int, help="cut the graph after so many time steps")
    sub.add_argument("--dtype", choices=("float32", "float64"), help="of the parameters")
    sub.add_argument("--precision", choices=("no", "bf16", "fp16"), help="mixed precision")
    sub.add_argument("--save-every", type=int, metavar="STEPS", help="between two checkpoints")
    sub.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="any other option: task.longest=10, model.memory=[64,16], clip_norm=1 (repeatable)",
    )  # fmt: skip
    sub.add_argument("--cpu", action="store_true", help="stay on the processor")
    sub.add_argument("--threads", type=_positive, default=1,
                     help="of the processor; tiny steps are fastest on one (1)")  # fmt: skip
    sub.add_argument("--no-tensorboard", action="store_true", help="write nothing for TensorBoard")


def _length_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--length", type=_positive, help="of the sequences; the longest of training")
    sub.add_argument("--repeats", type=_positive, help="of a repeated copy; the most of training")


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def main(options: argparse.Namespace) -> int:
    """Do what was asked; every failure that has a reason is one line."""
    try:
        _open_streams()
        return _act(options)
    except KeyboardInterrupt:
        return _fail("interrupted; what was saved before is whole", 130)
    finally:
        _settle_streams()


def _act(options: argparse.Namespace) -> int:
    if options.action is None:
        options.usage.print_help(sys.stderr)
        return 2
    needed = _NEEDS.get(options.action, ())
    if options.action == "train" and options.no_tensorboard:
        needed = tuple(name for name in needed if name != "tensorboard")
    missing = [name for name in needed if not _installed(name)]
    if missing:
        return _fail(
            f"`onegraph ntm {options.action}` needs {', '.join(missing)}: "
            "pip install '.[ntm]' in a checkout of onegraph"
        )
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "train": _train, "eval": _eval, "plot": _plot, "build": _build,
        "reproduce": _reproduce,
        "tasks": _tasks, "presets": _presets,
    }  # fmt: skip
    from onegraph.ntm.training.errors import RunError, reason

    try:
        return actions[options.action](options)
    except RunError as error:
        return error.status if error.quiet else _fail(str(error), error.status)
    except _Enough:
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'the system'}: {reason(error)}", 1)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


class _Enough(Exception):
    """A reader of stdout such as `head` wants no more."""


def _print(line: str) -> None:
    """Print a line of what was asked for."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise _Enough from None
    except OSError as error:
        error.filename = "stdout"
        raise


def _fail(message: str, status: int = 2) -> int:
    _tell(message)
    return status


def _tell(message: str) -> None:
    """Say something beside what was asked for; that nobody can hear it changes nothing."""
    with contextlib.suppress(OSError):
        print(f"onegraph: {message}", file=sys.stderr, flush=True)


def _open_streams() -> None:
    """Give what is printed somewhere to go, and let no character of it be a failure."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The shell closed it. The lowest number is taken, and no file of a run gets it later.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _settle_streams() -> None:
    """Drop what cannot be written: Python tries once more at its end, and fails for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _train(options: argparse.Namespace) -> int:
    from onegraph.ntm.training.checkpoint import Run
    from onegraph.ntm.training.loop import train
    from onegraph.ntm.training.presets import preset_for
    from onegraph.ntm.training.threads import use_threads

    use_threads(options.threads)
    preset = preset_for(options.task, options.preset)
    seed = preset.options.seed if options.seed is None else options.seed
    run = Run(options.out or Path("runs") / f"{preset.name}-{seed}")
    result = train(
        run,
        lambda run: _prepared(run, options),
        sys.stderr,
        cpu=options.cpu,
        board=not options.no_tensorboard,
    )
    if result.primary:
        last = result.curve[-1] if result.curve else None
        told = f", {last['bits_per_sequence']:.3f} bits a sequence at the end" if last else ""
        _print(f"{run}: {result.step:,} steps{told}")
    return 0


def _prepared(run: Run, options: argparse.Namespace) -> Options:
    """The options of the run: new, or those it was begun with, if nothing contradicts them."""
    from onegraph.ntm.training.errors import USAGE, RunError
    from onegraph.ntm.training.options import (
        FREE,
        changed,
        from_json,
        make_model,
        make_task,
        read_setting,
    )
    from onegraph.ntm.training.presets import preset_for

    changes: list[tuple[str, Any]] = [
        (name, getattr(options, name)) for name in _DIRECT if getattr(options, name) is not None
    ]
    changes += [read_setting(text) for text in options.settings]
    if not run.begun():
        start = preset_for(options.task, options.preset).options.to_json()
        made = from_json(changed(start, changes))
        make_model(made, make_task(made))
        return made
    if not options.resume:
        raise RunError(f"{run} holds a run already; --resume goes on with it", USAGE)
    before = run.options().to_json()
    asked = [("task", options.task), *changes]
    if options.preset is not None:
        asked.insert(1, ("preset", options.preset))
    after = changed(before, asked)
    for name, value in before.items():
        if name not in FREE and after[name] != value:
            raise RunError(
                f"{run} was begun with {name} {value}, not {after[name]}; "
                "leave that out, or begin another run", USAGE,
            )  # fmt: skip
    made = from_json(after)
    if made.steps < before["steps"]:
        found, _ = run.load()
        if found is not None and found.step > made.steps:
            raise RunError(f"{run} has {found.step:,} steps already; none is taken back", USAGE)
    return made


def _eval(options: argparse.Namespace) -> int:
    import dataclasses
    import json

    from onegraph.ntm.training.checkpoint import Run
    from onegraph.ntm.training.evaluate import UNITS, evaluate, trained
    from onegraph.ntm.training.threads import use_threads

    use_threads(1)
    model, made, step, _, complaints = trained(Run(options.run))
    for line in complaints:
        _tell(f"{line}; this is step {step:,}")
    found = evaluate(
        model, made, step,
        length=options.length, repeats=options.repeats,
        sequences=options.sequences, seed=options.seed,
    )  # fmt: skip
    if options.json:
        _print(json.dumps({**dataclasses.asdict(found), "bit_error_rate": found.rate}))
        return 0
    repeated = f" × {found.repeats} repeats" if found.repeats is not None else ""
    _print(
        f"{made.task}, {found.sequences:,} fresh sequences of {found.length} "
        f"{UNITS[made.task]}{repeated}, after {found.step:,} steps"
    )
    best = f" (the best possible: {found.bayes:.3f})" if found.bayes is not None else ""
    _print(f"cost: {found.cost:.4f} bits a sequence{best}")
    _print(f"bit error rate: {found.rate:.4%} ({found.errors:,} of {found.bits:,} bits)")
    return 0


def _plot(options: argparse.Namespace) -> int:
    from onegraph.ntm.training.checkpoint import Run
    from onegraph.ntm.training.plot import plot
    from onegraph.ntm.training.threads import use_threads

    use_threads(1)
    out = None if options.out is None else Path(options.out)
    for path in plot(
        Run(options.run), out,
        length=options.length, repeats=options.repeats, seed=options.seed,
    ):  # fmt: skip
        _print(str(path))
    return 0


def _build(options: argparse.Namespace) -> int:
    from onegraph.ntm.window.build import BuildError, build

    try:
        _print(f"the kernel is {build(limit=options.limit)}")
    except BuildError as error:
        return _fail(f"the kernel is not built, and all works without it, slower: {error}", 1)
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from onegraph.ntm.training.errors import USAGE, RunError
    from onegraph.ntm.training.reproduce import STUDIES, reproduce

    chosen = [row for row in STUDIES if options.only is None or row.name in options.only]
    missing = set(options.only or ()) - {row.name for row in chosen}
    if missing:
        known = ", ".join(repr(row.name) for row in STUDIES)
        raise RunError(f"there is no row {missing.pop()!r}; known are {known}", USAGE)
    print(
        reproduce(
            chosen, Path(options.out),
            processes=options.processes, baselines=not options.no_baselines,
        )
    )  # fmt: skip
    return 0


def _tasks(options: argparse.Namespace) -> int:
    import dataclasses

    from onegraph.ntm.tasks import TASKS

    for name, task in TASKS.items():
        _print(f"{name}: {(task.__doc__ or '').strip().partition(chr(10))[0]}")
        fields = ", ".join(
            f"task.{field.name}={str(field.default).lower()}" for field in dataclasses.fields(task)
        )
        _print(f"    {fields}")
    return 0


def _presets(options: argparse.Namespace) -> int:
    from onegraph.ntm.training.presets import PRESETS

    for name, preset in PRESETS.items():
        made = preset.options
        _print(f"{name}  (task {made.task})")
        _print(f"    source:    {preset.source}")
        _print(f"    published: {preset.published}")
        _print(f"    here:      {preset.here}")
        clip = ", ".join(
            f"{name.replace('_', ' ')} {value:g}"
            for name, value in (("clip_norm", made.clip_norm), ("clip_value", made.clip_value))
            if value is not None
        )
        _print(
            f"    options:   {made.steps:,} steps of batch {made.batch}, {made.optimizer} "
            f"lr {made.lr:g}, {clip}, loss a {made.loss}"
        )
        for group, values in (("task", made.task_options), ("model", made.model)):
            if values:
                told = " ".join(f"{group}.{key}={value}" for key, value in values.items())
                _print(f"               {told}")
    return 0
