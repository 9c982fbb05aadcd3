"""What a run is made of: options that can be written to JSON, and the task and model they name."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from onegraph.ntm.layer import NTM
from onegraph.ntm.tasks import TASKS, Task
from onegraph.ntm.training.errors import USAGE, RunError

# What may change when a run goes on: none of it changes a step that was taken.
FREE = ("steps", "save_every")
# Sizes that follow from the task, and an order of dimensions that the loop relies on.
_FIXED = ("input_size", "output_size", "batch_first")
# What making something of wrong arguments comes to.
_WRONG = (ValueError, TypeError, RuntimeError, IndexError, ArithmeticError, MemoryError)
# Each of these brings other options along, so it is no setting of its own, but given so:
_GIVEN = {"task": "TASK", "preset": "--preset"}


@dataclass(frozen=True)
class Options:
    """All that decides a run; two runs of equal options have equal curves.

    Args:
        task: a name in `TASKS`.
        preset: which preset the options began as.
        steps: how many times the parameters change.
        batch: how many sequences a step sees, over all processes.
        seed: decides the first parameters and every batch.
        task_options: arguments of the task.
        model: arguments of `NTM`, without the sizes that follow from the task.
        optimizer: "rmsprop" (torch's, centred), "rmsprop-uncentred", "graves" (the form of Graves
            2013) or "adam".
        lr: the learning rate.
        lr_end, lr_hold, lr_steps: it stays until step `lr_hold`, falls by equal factors to `lr_end`
            at step `lr_steps`, and stays there; without an `lr_end` it does not change.
        clip_norm: the largest norm of all gradients together; None leaves them.
        clip_value: the largest size of one component of a gradient; None leaves them.
        loss: what is minimised: nats a bit that counts ("bit") or nats a sequence ("sequence").
        window: after how many time steps the graph is cut; None: never.
        dtype: of parameters and inputs.
        precision: "no", "bf16" or "fp16", for Accelerate; None leaves it to its launcher.
        save_every: how many steps lie between checkpoints.
        log_every: how many steps make a point of the learning curve.
    """

    task: str
    preset: str = "none"
    steps: int = 10_000
    batch: int = 1
    seed: int = 1
    task_options: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: Literal["rmsprop", "rmsprop-uncentred", "graves", "adam"] = "rmsprop"
    lr: float = 3e-4
    lr_end: float | None = None
    lr_hold: int = 0
    lr_steps: int | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    loss: Literal["bit", "sequence"] = "bit"
    window: int | None = None
    dtype: Literal["float32", "float64"] = "float32"
    precision: Literal["no", "bf16", "fp16"] | None = None
    save_every: int = 500
    log_every: int = 20

    def to_json(self) -> dict[str, Any]:
        """The options as JSON holds them."""
        # Through text and back, so that a fresh run and a loaded one compare equal: no tuples.
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found


def from_json(values: Mapping[str, Any]) -> Options:
    """The options that `Options.to_json` wrote, checked.

    Raises:
        RunError: a name is unknown, a value is not of its kind, or one is missing.
    """
    known = _kinds(Options)
    for name, value in values.items():
        _require_known(name, known, "option")
        _require_kind(name, value, known[name])
    if "task" not in values:
        raise RunError("no task is named", USAGE)
    options = Options(**values)
    for name in ("steps", "batch", "save_every", "log_every"):
        if getattr(options, name) < 1:
            raise RunError(f"{name} is {getattr(options, name)}; it must be at least 1", USAGE)
    if not 0 <= options.seed < 2**63:
        raise RunError(f"seed is {options.seed}; it must be from 0 to 2**63 - 1", USAGE)
    if (options.lr_end is None) != (options.lr_steps is None):
        raise RunError("lr_end and lr_steps belong together", USAGE)
    if options.lr_steps is not None and not 0 <= options.lr_hold < options.lr_steps:
        raise RunError(f"lr_hold is {options.lr_hold}; it must lie before lr_steps", USAGE)
    for name in ("lr", "lr_end", "lr_steps", "clip_norm", "clip_value", "window"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise RunError(f"{name} is {value}; it must be positive", USAGE)
    return options


def changed(values: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Option values with changes such as ``("lr", 1e-3)`` or ``("task.longest", 10)`` made.

    Raises:
        RunError: there is no such option.
    """
    values = {**values, "task_options": {**values["task_options"]}, "model": {**values["model"]}}
    for name, value in changes:
        group, dot, inner = name.partition(".")
        if not dot:
            _require_known(name, set(_kinds(Options)) - {"task_options", "model"}, "option")
            values[name] = value
        elif group == "task":
            values["task_options"][inner] = value
        elif group == "model":
            values["model"][inner] = value
        else:
            raise RunError(f"{name}: an option of the task or of the model begins with "
                           "`task.` or `model.`", USAGE)  # fmt: skip
    return values


def read_setting(text: str) -> tuple[str, Any]:
    """``"task.longest=10"`` as ("task.longest", 10); what is no JSON is a string.

    Raises:
        RunError: it is written another way, or is no option to be set alone.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise RunError(f"{text!r}: a setting is written NAME=VALUE", USAGE)
    if name in _GIVEN:
        raise RunError(f"{name} is no setting; it is given as {_GIVEN[name]}", USAGE)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def make_task(options: Options) -> Task:
    """The task, tried out on a batch of one.

    Raises:
        RunError: there is no such task, or an argument of it is wrong.
    """
    _require_known(options.task, TASKS, "task")
    kind = TASKS[options.task]
    known = _kinds(kind)
    for name, value in options.task_options.items():
        _require_known(name, known, f"option of the task {options.task}")
        _require_kind(f"task.{name}", value, known[name])
    try:
        task = kind(**options.task_options)
        task.draw(1, torch.Generator().manual_seed(0))
    except _WRONG as error:
        raise RunError(f"the task {options.task} cannot be drawn: {_first(error)}", USAGE) from None
    return task


def make_model(options: Options, task: Task) -> NTM:
    """The model as it is before the first step, decided by the seed alone; tried out on one.

    Raises:
        RunError: an argument of it is wrong, or it does not fit into memory.
    """
    # In JSON a controller can only be named.
    known = {**_kinds(NTM.__init__), "controller": str}
    known = {name: known[name] for name in inspect.signature(NTM).parameters if name not in _FIXED}
    for name, value in options.model.items():
        _require_known(name, known, "option of the model")
        _require_kind(f"model.{name}", value, known[name])
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            model = NTM(task.input_size, task.output_size, **options.model)
            model.to(getattr(torch, options.dtype))
            with torch.no_grad():
                model(torch.zeros(1, 1, task.input_size, dtype=model.output.weight.dtype))
    except _WRONG as error:
        raise RunError(f"the model cannot be made: {_first(error)}", USAGE) from None
    return model


def _kinds(kind: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _require_known(name: str, known: Iterable[str], what: str) -> None:
    names = sorted(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        raise RunError(f"there is no {what} {name!r}; {hint}", USAGE)


def _require_kind(name: str, value: Any, kind: Any) -> None:
    if not _fits(value, kind):
        raise RunError(f"{name} is {json.dumps(value)}; it must be {_spelt(kind)}", USAGE)


def _fits(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin is Literal:
        return value in typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(kind))
    if origin is dict:
        return isinstance(value, dict)
    if origin is tuple:
        parts = typing.get_args(kind)
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(parts)
            and all(map(_fits, value, parts))
        )
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _spelt(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_spelt(part) for part in typing.get_args(kind))
    if origin is tuple:
        return f"[{', '.join(_spelt(part) for part in typing.get_args(kind))}]"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
    return "null" if kind is type(None) else words.get(kind, "an object")


def _first(error: BaseException) -> str:
    line = str(error).partition("\n")[0]
    # torch tells it as a RuntimeError, with the place in its own source.
    if isinstance(error, MemoryError) or "allocate memory" in line:
        return "there is not enough memory"
    return line
