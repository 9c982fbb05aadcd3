"""The published results, run again: studies of several seeds that can stop anywhere and go on.

A study is a run of `onegraph ntm train` that is looked at every so many sequences, on fresh
sequences that are the same at every look. A look that sees the goal is followed by one at ten times
as many; when that sees it too, or after the last step, the study ends.
What it is then is measured on other sequences, which no look has seen. Beside each task stands an
LSTM that sees the same batches. Everything lies in one folder: the runs, a JSON file a study, the
pictures of the first seed, and the table.
"""

from __future__ import annotations

import dataclasses
import io
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from torch import nn

from onegraph.ntm.training.baseline import train_baseline
from onegraph.ntm.training.checkpoint import Run
from onegraph.ntm.training.errors import Diverged
from onegraph.ntm.training.evaluate import Evaluation, evaluate, trained
from onegraph.ntm.training.loop import train
from onegraph.ntm.training.options import Options
from onegraph.ntm.training.plot import plot
from onegraph.ntm.training.presets import PRESETS
from onegraph.ntm.training.threads import use_threads

# Sequences of a look, of the second look where that one sees the goal reached, and of the
# measurement at the end; and the seeds that they come from.
LOOKED, CONFIRMED, MEASURED = 64, 640, 640
LOOK_SEED, CONFIRM_SEED, MEASURE_SEED = 1_000, 1_001, 2_000


@dataclass(frozen=True)
class Size:
    """A size of sequences to measure at, and what must be so there for the goal to be reached.

    Args:
        length, repeats: see `evaluate`.
        cost: the most bits a sequence; above the best possible cost, where that is known.
        errors: the most wrong bits.
    """

    length: int
    repeats: int | None = None
    cost: float | None = None
    errors: int | None = None

    def __str__(self) -> str:
        return f"{self.length}" if self.repeats is None else f"{self.length} × {self.repeats}"

    def reached(self, found: Evaluation) -> bool:
        """Whether it is so."""
        cost = found.cost - (found.bayes or 0.0)
        return (self.cost is None or cost < self.cost) and (
            self.errors is None or found.errors <= self.errors
        )


@dataclass(frozen=True)
class Study:
    """One row of the table.

    Args:
        name: of the row.
        preset: what is trained.
        seeds: how many.
        steps: at most so many.
        every: how many steps lie between two looks.
        sizes: where it is measured.
        layers, hidden_size: of the LSTM beside it.
        baseline_steps: how long that is trained.
        baseline_changes: options that it has of its own.
    """

    name: str
    preset: str
    seeds: int
    steps: int
    every: int
    sizes: Sequence[Size]
    layers: int = 1
    hidden_size: int = 256
    baseline_steps: int = 10_000
    baseline_changes: dict[str, Any] = field(default_factory=dict)

    def options(self, seed: int) -> Options:
        """Those of a run."""
        return dataclasses.replace(
            PRESETS[self.preset].options, seed=seed, steps=self.steps, save_every=self.every
        )

    def goals(self) -> list[Size]:
        """The sizes at which something must be so."""
        return [size for size in self.sizes if size.cost is not None or size.errors is not None]


STUDIES = (
    Study(
        *("copy", "copy", 10, 40_000, 500),
        (Size(20, cost=0.05), Size(40), Size(60), Size(80), Size(100), Size(120, errors=0)),
    ),
    Study(
        *("associative recall", "associative-recall", 5, 40_000, 1000),
        (Size(6, cost=0.05), Size(10), Size(12), Size(15, cost=1.0), Size(20)),
    ),
    Study(
        *("repeat copy", "repeat-copy", 3, 40_000, 2000),
        (Size(10, 10, cost=0.05), Size(20, 10), Size(10, 20), Size(20, 20)),
    ),
    Study(
        *("dynamic 6-grams", "ngrams", 3, 15_000, 500),
        (Size(200, cost=2.0),),
        baseline_steps=5000,
    ),
    Study(
        *("priority sort", "priority-sort", 3, 10_000, 500),
        (Size(20),),
        baseline_steps=10_000,
    ),
)


def study(row: Study, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run one seed of a study, or what is left of it, and return what it came to."""
    path = folder / f"{_slug(row.name)}-{seed}" / "study.json"
    found = _read(path)
    if "measured" in found:
        return found
    options, run = row.options(seed), Run(path.parent)
    looks = found.setdefault("looks", [])
    while "diverged" not in found and (
        not looks or (not looks[-1]["reached"] and looks[-1]["step"] < row.steps)
    ):
        step = min(row.steps, (looks[-1]["step"] if looks else 0) + row.every)
        begun = time.monotonic()
        try:
            train(run, _up_to(options, step), io.StringIO(), cpu=True, board=False)
        except Diverged as error:
            # A result like any other; what was saved before is what there is.
            found["diverged"] = str(error)
            tell(f"{row.name}, seed {seed}: {error}")
            break
        seconds = time.monotonic() - begun
        model = trained(run)[0]
        looks.append(_look(row, options, model, step, seconds))
        _write(path, found)
        tell(f"{row.name}, seed {seed}: {_told(looks[-1])}")
    model, _, step, _, _ = trained(run)
    found |= _measured(row, options, model, step, looks)
    _write(path, found)
    return found


def baseline(row: Study, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train the LSTM beside a study, from its beginning, and return what it came to."""
    path = folder / f"{_slug(row.name)}-lstm" / "study.json"
    found = _read(path)
    if "measured" in found:
        return found
    options = dataclasses.replace(
        row.options(seed=1), steps=row.baseline_steps, **row.baseline_changes
    )
    looks: list[dict[str, Any]] = []
    begun = time.monotonic()

    def look(model: nn.Module, step: int) -> bool:
        nonlocal begun
        looks.append(_look(row, options, model, step, time.monotonic() - begun))
        begun = time.monotonic()
        tell(f"{row.name}, LSTM: {_told(looks[-1])}")
        return bool(looks[-1]["reached"])

    model = train_baseline(options, row.hidden_size, row.layers, look)
    found = {"looks": looks, **_measured(row, options, model, options.steps, looks)}
    _write(path, found)
    return found


def table(studies: Iterable[Study], folder: Path) -> str:
    """What is there by now, as markdown."""
    lines = [
        "| task | network | seeds that reached the goal | sequences to the goal, as seen on "
        f"{LOOKED} fresh ones; on {CONFIRMED}: median (range) | seconds a seed, median | "
        "bits a sequence (wrong bits) at each size, median |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in studies:
        found = [
            _read(path) for path in sorted(folder.glob(f"{_slug(row.name)}-[0-9]*/study.json"))
        ]
        done = [each for each in found if "measured" in each]
        if done:
            lines.append(_line(row, "NTM", done))
        beside = _read(folder / f"{_slug(row.name)}-lstm" / "study.json")
        if "measured" in beside:
            lines.append(_line(row, f"LSTM, {row.layers} × {row.hidden_size}", [beside]))
    return "\n".join(lines)


def _line(row: Study, network: str, done: list[dict[str, Any]]) -> str:
    reached = sorted(each["looks"][-1]["sequences"] for each in done if each["reached"])
    firsts = [next((look for look in each["looks"] if look["seen"]), None) for each in done]
    seen = sorted(look["sequences"] for look in firsts if look is not None)
    seconds = median(sum(look["seconds"] for look in each["looks"]) for each in done)
    spread = f"{_spread(seen)}; {_spread(reached)}"
    if not row.goals():
        spread = f"(trained on {done[0]['looks'][-1]['sequences']:,})"
    parts = []
    for place, size in enumerate(row.sizes):
        costs = [each["measured"][place]["cost"] for each in done]
        best = done[0]["measured"][place]["bayes"]
        wrong = median(each["measured"][place]["errors"] for each in done)
        bits = done[0]["measured"][place]["bits"]
        above = "" if best is None else f", the best possible {best:.2f}"
        parts.append(f"{size}: {median(costs):.3f} ({wrong:,.0f} of {bits:,}{above})")
    counted = f"{len(reached)} of {len(done)}" if row.goals() else f"({len(done)} seeds)"
    cells = (row.name, network, counted, spread, f"{seconds:.0f}", "; ".join(parts))
    return "| " + " | ".join(cells) + " |"


def _spread(numbers: Sequence[int]) -> str:
    """The median and the range of sorted numbers."""
    return f"{median(numbers):,.0f} ({numbers[0]:,} to {numbers[-1]:,})" if numbers else "–"


def _up_to(options: Options, step: int) -> Callable[[Run], Options]:
    return lambda _: dataclasses.replace(options, steps=step)


def _look(
    row: Study, options: Options, model: nn.Module, step: int, seconds: float
) -> dict[str, Any]:
    sizes = row.goals() or row.sizes

    def at(sequences: int, seed: int) -> list[Evaluation]:
        return [_at(size, options, model, step, sequences, seed) for size in sizes]

    found = at(LOOKED, LOOK_SEED)
    seen = bool(row.goals()) and _all_reached(sizes, found)
    return {
        "step": step,
        "sequences": step * options.batch,
        "seconds": seconds,
        "costs": [each.cost - (each.bayes or 0.0) for each in found],
        "errors": [each.errors for each in found],
        "seen": seen,
        "reached": seen and _all_reached(sizes, at(CONFIRMED, CONFIRM_SEED)),
    }


def _all_reached(sizes: Sequence[Size], found: Sequence[Evaluation]) -> bool:
    return all(size.reached(each) for size, each in zip(sizes, found, strict=True))


def _measured(
    row: Study, options: Options, model: nn.Module, step: int, looks: list[dict[str, Any]]
) -> dict[str, Any]:
    found = [_at(size, options, model, step, MEASURED, MEASURE_SEED) for size in row.sizes]
    return {
        "reached": bool(looks) and looks[-1]["reached"],
        "measured": [dataclasses.asdict(each) for each in found],
    }


def _at(
    size: Size, options: Options, model: nn.Module, step: int, sequences: int, seed: int
) -> Evaluation:
    return evaluate(
        model, options, step,
        length=size.length, repeats=size.repeats, sequences=sequences, seed=seed,
    )  # fmt: skip


def _told(look: dict[str, Any]) -> str:
    costs = ", ".join(f"{cost:.3f} bits ({errors} wrong)" for cost, errors in
                      zip(look["costs"], look["errors"], strict=True))  # fmt: skip
    state = ", reached" if look["reached"] else ", seen" if look["seen"] else ""
    return f"{look['sequences']:,} sequences, {costs}{state}"


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.write_text(json.dumps(found, indent=1), encoding="utf-8")
    os.replace(draft, path)


def jobs(studies: Iterable[Study], baselines: bool) -> list[tuple[str, int | None]]:
    """What there is to do, by the study's name and the seed; None stands for the LSTM."""
    found: list[tuple[str, int | None]] = []
    for row in studies:
        found += [(row.name, seed) for seed in range(1, row.seeds + 1)]
        found += [(row.name, None)] * baselines
    return found


def do(job: tuple[str, int | None], folder: Path) -> None:
    """Do one job, told on stderr; what is done already takes no time."""
    name, seed = job
    row = next(each for each in STUDIES if each.name == name)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    use_threads(1)
    if seed is None:
        baseline(row, folder, tell)
    else:
        study(row, seed, folder, tell)


def reproduce(
    studies: Sequence[Study], folder: Path, *, processes: int = 1, baselines: bool = True
) -> str:
    """Do what is not done yet; draw the first seed of each study; return the table.

    Args:
        folder: where all of it lies.
        processes: how many jobs at a time, each on one thread.
        baselines: whether the LSTMs are trained too.

    Raises:
        RunError: a run cannot begin or go on, or a signal ended it; the same call goes on.
    """
    todo = jobs(studies, baselines)
    if processes == 1:
        for job in todo:
            do(job, folder)
    else:
        # Fresh processes: a forked one would inherit torch's threads, which do not survive it.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            for future in [pool.submit(do, job, folder) for job in todo]:
                future.result()
    for row in studies:
        run = Run(folder / f"{_slug(row.name)}-1")
        if run.begun():
            plot(run, folder / "pictures" / _slug(row.name))
    found = table(studies, folder)
    (folder / "results.md").write_text(found + "\n", encoding="utf-8")
    return found
