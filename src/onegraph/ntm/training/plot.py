"""Pictures of a run, as the 2014 paper's figures have them (arXiv:1410.5401).

The learning curve (figure 3), targets beside outputs beside errors (figure 4), and what the memory
does over time: what is added and read, and the weightings of the heads (figure 6).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from onegraph.ntm.layer import NTM
from onegraph.ntm.training.checkpoint import Run
from onegraph.ntm.training.errors import RunError, reason
from onegraph.ntm.training.evaluate import UNITS, Trace, sized, trace, trained
from onegraph.ntm.training.options import Options, make_task

INK, BLUE, RED, GREY = "#22262b", "#1f5fa8", "#c8352b", "#8b929b"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Text stays text, and a picture of the same numbers is the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "onegraph",
}
# Slots that no head ever looks at are left out, but for this many beside those that one does.
_MARGIN = 3


def plot(
    run: Run,
    folder: Path | None = None,
    *,
    length: int | None = None,
    repeats: int | None = None,
    seed: int = 0,
) -> list[Path]:
    """Draw a run's pictures, each as PNG and as SVG.

    Args:
        run: with at least one checkpoint.
        folder: where the pictures go; by default `plots` in the run.
        length, repeats: of the sequence that is drawn, as for `evaluate`.
        seed: decides that sequence.

    Returns:
        The files.

    Raises:
        RunError: there is nothing to draw, or the files cannot be written.
    """
    model, options, step, curve, _ = trained(run)
    at, length, repeats = sized(options, length, repeats)
    found = trace(model, make_task(at), seed)
    size = f"{length} {UNITS[options.task]}" + ("" if repeats is None else f" × {repeats}")
    title = f"{options.task}, {size}, after {step:,} steps"
    folder = run.folder / "plots" if folder is None else folder
    paths: list[Path] = []
    with rc_context(_STYLE):
        figures = {
            "learning-curve": draw_curve(curve, options),
            "outputs": draw_outputs(found, title),
            "memory": draw_memory(found, model, title),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, figure in figures.items():
                for kind in ("png", "svg"):
                    path = folder / f"{name}.{kind}"
                    _save(figure, path, kind)
                    paths.append(path)
        except OSError as error:
            raise RunError(
                f"cannot write {error.filename or folder}: {reason(error)}; the run is as it was"
            ) from None
    return paths


def _save(figure: Figure, path: Path, kind: str) -> None:
    """Write a picture beside its place and put it there when it is whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        # SVG would carry the day it was drawn.
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(partial, format=kind, dpi=160, metadata=metadata)
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def draw_curve(curve: Sequence[dict[str, float]], options: Options) -> Figure:
    """Bits a sequence over the sequences seen, and the share of wrong bits below it."""
    figure = _figure(8, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
    seen = [point["step"] * options.batch for point in curve]
    series = (
        (above, "bits_per_sequence", BLUE, 1.0, "bits per sequence"),
        (below, "bit_error_rate", RED, 100.0, "wrong bits, %"),
    )
    for axes, name, colour, scale, label in series:
        values = [scale * point[name] for point in curve]
        axes.plot(seen, values, color=colour, alpha=0.25, linewidth=0.9)
        axes.plot(seen, _smooth(values), color=colour, linewidth=1.8)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    figure.suptitle(
        f"{options.task}: learning curve (preset {options.preset}, seed {options.seed}, "
        f"batch {options.batch})",
        x=0.012, ha="left", fontsize=12, fontweight="bold",
    )  # fmt: skip
    if curve:
        last = _smooth([point["bits_per_sequence"] for point in curve])[-1]
        above.annotate(
            f"{last:.3g} bits", (seen[-1], last), xytext=(0, 7), textcoords="offset points",
            ha="right", va="bottom", color=BLUE, fontweight="bold",
        )  # fmt: skip
        above.set_xlim(0, seen[-1])
    else:
        above.text(0.5, 0.5, "no point of the curve yet", transform=above.transAxes, ha="center")
    below.set_xlabel("sequences seen")
    below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    figure.align_ylabels()
    return figure


def draw_outputs(found: Trace, title: str) -> Figure:
    """Targets, outputs and errors, each a picture of bits over the steps that count."""
    counted = found.batch.mask[:, 0]
    targets, outputs = found.batch.targets[counted, 0], found.outputs[counted]
    errors = (outputs > 0.5) != (targets > 0.5)
    steps, bits = targets.shape
    figure = _figure(_width(steps), 1.25 + 3 * max(0.85, min(bits, 12) * 0.125))
    rows = figure.subplots(3, 1, sharex=True)
    count = int(errors.sum())
    words = "no wrong bit" if not count else f"{count} of {errors.numel()} bits wrong"
    parts = (
        ("Targets", targets, "gray_r"),
        ("Outputs", outputs, "gray_r"),
        (f"Errors: {words}", errors.float(), ListedColormap(["#f4f5f6", RED])),
    )
    for axes, (name, values, colours) in zip(rows, parts, strict=True):
        _image(axes, values.t(), colours)
        axes.set_title(name)
        axes.set_yticks([])
    _count_time(rows[-1], steps)
    rows[-1].set_xlabel("time step of the answer")
    _title(figure, title)
    return figure


def draw_memory(found: Trace, model: NTM, title: str) -> Figure:
    """Inputs and outputs, what is added and read, and the weightings, over time."""
    inputs, counted = found.batch.inputs[:, 0], found.batch.mask[:, 0]
    steps = len(inputs)
    outputs = found.outputs * counted.unsqueeze(1)
    first, last = _used(found)
    slots = min(max(last - first, 8), 48) * 0.055
    tall = (0.9, 0.9, 1.1, 1.1, max(slots, 1.3), max(slots, 1.3))
    figure = _figure(_width(steps), 1.6 + sum(tall) + 6 * 0.22)
    rows = figure.subplots(6, 1, sharex=True, height_ratios=tall)
    parts: tuple[tuple[str, Tensor, str], ...] = (
        ("Inputs", inputs, "gray_r"),
        ("Outputs", outputs, "gray_r"),
        ("Adds", found.adds, "RdBu_r"),
        ("Reads", found.reads, "RdBu_r"),
        ("Write weightings", found.write_weightings[:, first:last], "magma"),
        ("Read weightings", found.read_weightings[:, first:last], "magma"),
    )
    for axes, (name, values, colours) in zip(rows, parts, strict=True):
        weighting = name.endswith("weightings")
        _image(axes, values.t(), colours, (first, last) if weighting else None)
        axes.set_title(name)
        axes.set_yticks([])
        if weighting:
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.set_ylabel("slot")
        # Where the answer begins: what was written before is read after.
        begin = int(counted.float().argmax()) - 0.5
        axes.axvline(begin, color="white" if weighting else GREY, linewidth=0.9, linestyle=":")
    _count_time(rows[-1], steps)
    rows[-1].set_xlabel("time step (dotted: the answer begins)")
    cell = model.cell
    _title(
        figure, f"{title}: memory {cell.slots} × {cell.width}, {_shown(first, last, cell.slots)}"
    )
    return figure


def _image(axes: Axes, values: Tensor, colours: Any, slots: tuple[int, int] | None = None) -> None:
    """Rows of numbers as a picture; bits and weightings from 0 to 1, others around 0."""
    signed = colours == "RdBu_r"
    # An addition or a read may be larger than 1; most are not, and the rest lose no shade.
    reach = max(float(values.abs().max()), 1e-6) if signed else 1.0
    low, high = slots or (0, len(values))
    drawn = axes.imshow(
        values.tolist(), cmap=colours, vmin=-reach if signed else 0.0, vmax=reach,
        aspect="auto", interpolation="nearest",
        extent=(-0.5, values.shape[1] - 0.5, high - 0.5, low - 0.5),
    )  # fmt: skip
    drawn.set_rasterized(False)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(True)
        axes.spines[side].set_linewidth(0.6)
    axes.tick_params(length=2.5)


def _used(found: Trace) -> tuple[int, int]:
    """The range of slots that a head looks at, with a margin."""
    looked = (found.read_weightings.amax(0) + found.write_weightings.amax(0)) > 0.05
    slots = looked.nonzero().flatten().tolist() or [0, len(looked) - 1]
    return max(slots[0] - _MARGIN, 0), min(slots[-1] + 1 + _MARGIN, len(looked))


def _shown(first: int, last: int, slots: int) -> str:
    return "all slots" if last - first == slots else f"slots {first} to {last - 1}"


def _smooth(values: Sequence[float]) -> list[float]:
    """The mean of the points around each, a hundredth of them all on either side at most."""
    span, found = len(values) // 100, []
    for place in range(len(values)):
        # As many on either side, so that a fall is where it was.
        reach = min(span, place, len(values) - 1 - place)
        part = values[place - reach : place + reach + 1]
        found.append(sum(part) / len(part))
    return found


def _figure(width: float, height: float) -> Figure:
    # No pyplot: no global state, no display.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _width(steps: int) -> float:
    """Inches for so many time steps."""
    return min(max(steps * 0.12, 7.0), 16.0)


def _count_time(axes: Axes, steps: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(min(steps, 12), integer=True))


def _title(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")
