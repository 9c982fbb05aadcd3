"""What the primitives of onegraph.lifetime save and cost, beside what people use today."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine

os.environ.update(machine.ONE_THREAD)

import torch

from benchmarks import forms
from benchmarks.pairs import Estimate, in_pairs, ratios, timed
from benchmarks.tables import markdown, verdict

MODULE = "benchmarks.lifetime"
MB = 1 << 20
EXACT = 1e-12
SLOWER = 1.15
BLOCKS_HELD = 6.0
RETURNED = "MALLOC_MMAP_THRESHOLD_"
PEERS = ("grad-cache",)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: sizes, and pairs of runs.

    Args:
        rows: through the trunk, of 256 numbers each.
        counts: of blocks.
        pairs: of runs of two forms; those with retain_graph get ``retained``.
        items: of which all pairs are made; and so many where the whole matrix is made too.
        length, batch: of the sequence, in windows of 50 steps.
        large: the batch in which each item is compared with all.
    """

    rows: int = 3072
    counts: tuple[int, ...] = (4, 16, 64)
    pairs: int = 6
    retained: int = 2
    items: tuple[int, int] = (4096, 768)
    block: int = 256
    length: int = 510
    batch: int = 16
    large: int = 2048


EFFORTS = {
    "full": Effort(),
    "quick": Effort(2048, (4, 16), 4, 1, (1024, 512), 256, 260, 16, 1024),
    # For tests: everything runs, and no number means anything.
    "token": Effort(64, (4,), 1, 1, (24, 12), 8, 110, 2, 64),
}


# -- measuring ------------------------------------------------------------------------------------


def peak(case: str, form: str, sizes: list[Any], small: list[Any], **options: Any) -> float:
    """MB that one run adds to a fresh process at its peak, after a run on little data."""
    return _fresh(case, form, sizes, small, **options)["peak"]


def _fresh(
    case: str, form: str, sizes: list[Any], small: list[Any], **options: Any
) -> dict[str, float]:
    asked = {"case": case, "form": form, "sizes": sizes, "small": small, "options": options}
    found: dict[str, float] = machine.run_module(MODULE, "--child", json.dumps(asked))
    return found


@contextmanager
def giving_back() -> Iterator[None]:
    """Let glibc give large freed memory back at once in the processes started inside.

    By default it keeps much of it, in pieces that do not always fit again.
    """
    os.environ[RETURNED] = str(1 << 20)
    try:
        yield
    finally:
        del os.environ[RETURNED]


def _child(asked: dict[str, Any]) -> dict[str, float]:
    machine.one_thread()
    make = forms.CASES[asked["case"]]
    make(*asked["small"], **asked["options"]).run(asked["form"])
    case = make(*asked["sizes"], **asked["options"])
    gc.collect()
    _forget_peak()
    start = machine.resident_mb()
    seconds = timed(lambda: case.run(asked["form"])).cpu
    return {"peak": _peak_mb() - start, "seconds": seconds}


def _forget_peak() -> None:
    # Importing torch, and the process that started this one, can have had more.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return machine.peak_mb()
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found[0]) / 1024 if found else machine.peak_mb()


def slower(case: forms.Case, form: str, other: str, pairs: int) -> Estimate:
    """Computing time of one form over another's, from runs that alternate; both have run before."""

    def run(name: str) -> Callable[[int], Any]:
        def once(_: int) -> Any:
            gc.collect()
            return timed(lambda: case.run(name))

        return once

    return ratios(in_pairs(run(other), run(form), pairs))["cpu"]


def apart(case: forms.Case, form: str, other: str) -> float:
    """The largest difference of two forms' gradients, relative to the largest gradient."""
    ours, theirs = case.gradients(form), case.gradients(other)
    most = max(float(one.abs().max()) for one in theirs)
    both = zip(ours, theirs, strict=True)
    return max(float((one - other).abs().max()) for one, other in both) / most


def saved(case: forms.Case, form: str) -> float:
    """MB of tensors other than parameters that graphs hold for backward at most."""
    with forms.held(case.parameters) as count:
        case.run(form)
    return count.most / MB


# -- tables ---------------------------------------------------------------------------------------


def trunk(effort: Effort) -> dict[str, Any]:
    """Memory and time of split_at with blocks, retain_graph and one summed backward."""
    rows = []
    for count in effort.counts:
        case = forms.trunk(count, effort.rows, 256)
        for form in case.forms:
            pairs = effort.retained if form == "retain_graph" else effort.pairs
            sizes, small = [count, effort.rows, 256], [4, 16, 8]
            rows.append(
                {
                    "blocks": count,
                    "form": form,
                    "saved": saved(case, form),
                    "peak": peak("trunk", form, sizes, small),
                    "time": None if form == "summed" else slower(case, form, "summed", pairs),
                }
            )
    heads = ["blocks", "form", "process, MB above start", "saved tensors, MB", "time / summed"]
    retained = {r["blocks"]: r["time"].median for r in rows if r["form"] == "retain_graph"}
    spelled = []
    for row in rows:
        time = row["time"]
        told = "1" if time is None else _ratio(time)
        if row["form"].startswith("split_at"):
            told = f"**{time.median:.2f}** {verdict(time.median, SLOWER, '.2f')}, "
            told += "below" if time.median < retained[row["blocks"]] else "NOT BELOW"
            told += f" retain_graph {_range(time)}"
        spelled.append(
            [
                str(row["blocks"]),
                row["form"],
                f"{row['peak']:.0f}",
                f"{row['saved']:.1f}",
                told,
            ]
        )
    return {"rows": rows, "table": markdown(heads, spelled)}


def exactness(effort: Effort, peer: str | None) -> dict[str, Any]:
    """Gradients in float64 against a reference."""
    double = torch.float64
    found: list[tuple[str, str, float]] = []
    for count in effort.counts:
        case = forms.trunk(count, 256, 64, double)
        for other in ("summed", "retain_graph"):
            off = apart(case, "split_at, blocks", other)
            found.append((f"split_at, blocks, {count} blocks", other, off))
    case = forms.pairs(70, 16, 16, 16, double)
    off = apart(case, "pairwise_blocks", "whole matrix")
    found.append(("split_at, pairwise_blocks", "whole matrix", off))
    case = forms.sequence(110, 50, 8, 16, double)
    for form in ("windows", "backward_windows"):
        found.append((form, "the loop by hand", apart(case, form, "by hand")))
    case = forms.contrast(96, 32, 16, double, peer)
    for form in ("split_at, checkpoint", "the same, blocks of rows"):
        found.append(
            (f"contrastive, dropout: {form}", "whole batch", apart(case, form, "whole batch"))
        )
    spelled = [[a, b, f"{off:.0e} {verdict(off, EXACT)}"] for a, b, off in found]
    heads = ["with", "reference", "largest difference / largest gradient"]
    rows = [dict(zip(("form", "reference", "apart"), one, strict=True)) for one in found]
    return {"rows": rows, "table": markdown(heads, spelled)}


def pairwise(effort: Effort) -> dict[str, Any]:
    """All pairs of vectors behind an encoder: memory in blocks."""
    d, block = 64, effort.block
    one = block * block * 2 * d * 4 / MB
    rows = []
    many, few = effort.items
    for n, hidden, form in (
        (few, d, "whole matrix"),
        (few, d, "pairwise_blocks"),
        (many, d, "pairwise_blocks"),
        (many, d // 2, "pairwise_blocks"),
    ):
        sizes, small = [n, d, block, hidden], [8, d, 4, hidden]
        default = _fresh("pairs", form, sizes, small)
        returned = None
        if form == "pairwise_blocks" and hidden == d:
            with giving_back():
                returned = peak("pairs", form, sizes, small) / one
        rows.append(
            {
                "n": n,
                "hidden": hidden,
                "form": form,
                "peak": default["peak"],
                "blocks": default["peak"] / one,
                "returned": returned,
                "time": default["seconds"],
            }
        )

    def told(row: dict[str, Any], name: str) -> str:
        if row[name] is None:
            return "–"
        if row["form"] == "whole matrix":
            return f"{row[name]:.1f}"
        return f"**{row[name]:.1f}** {verdict(row[name], BLOCKS_HELD)}"

    spelled = [
        [
            str(row["n"]),
            str(row["hidden"]),
            row["form"],
            f"{row['n'] ** 2 * 2 * d * 4 / 1e9:.2f}",
            f"{row['peak']:.0f}",
            told(row, "blocks"),
            told(row, "returned"),
            f"{row['time']:.1f}",
            f"{row['time'] / row['n'] ** 2 * 1e6:.2f}",
        ]
        for row in rows
    ]
    heads = ["n", "hidden", "form", "matrix, GB", "process, MB above start", "in blocks"]
    heads += ["in blocks, freed memory given back", "s", "µs a pair"]
    about = (
        f"\n\nA block is {one:.0f} MB. glibc keeps freed memory by default, in pieces that do "
        f"not always fit again; given back: {RETURNED}={1 << 20}."
    )
    return {"rows": rows, "block_mb": one, "table": markdown(heads, spelled) + about}


def sequences(effort: Effort) -> dict[str, Any]:
    """Truncated back-propagation beside Ignite's trainer."""
    sizes, small = [effort.length, 50, effort.batch, 64], [6, 2, 2, 4]
    case = forms.sequence(*sizes)
    double = forms.sequence(*sizes, torch.float64)
    truth = double.run("by hand")
    case.run("by hand")
    rows = []
    for form in case.forms:
        row: dict[str, Any] = {"form": form, "peak": peak("sequence", form, sizes, small)}
        row["saved"] = saved(case, form)
        alone = form == "by hand"
        row["time"] = None if alone else slower(case, form, "by hand", effort.pairs)
        row["loss"] = abs(double.run(form) / truth - 1)
        row["apart"] = apart(double, form, "by hand") if form in case.code else None
        row["lines"] = case.lines(form) if form in case.code else None
        rows.append(row)
    spelled = [
        [
            row["form"],
            "1" if row["time"] is None else _ratio(row["time"]),
            f"{row['peak']:.0f}",
            f"{row['saved']:.1f}",
            "–" if row["lines"] is None else f"{row['loss']:.0e}",
            "–" if row["apart"] is None else f"{row['apart']:.0e}",
            "–" if row["lines"] is None else str(row["lines"]),
        ]
        for row in rows
    ]
    heads = ["form", "time / by hand", "process, MB above start", "saved tensors, MB"]
    heads += ["mean loss off by", "gradients off by", "lines"]
    note = "" if "Ignite" in case.forms else "\n\nIgnite: not installed (`pytorch-ignite`)."
    return {"rows": rows, "table": markdown(heads, spelled) + note}


def contrast(effort: Effort, peer: str | None) -> dict[str, Any]:
    """A large contrastive batch beside GradCache."""
    sizes, small = [effort.large, 512, effort.large // 16], [8, 16, 4]
    case = forms.contrast(*sizes, peer=peer)
    double = forms.contrast(96, 32, 16, torch.float64, peer)
    rows = []
    case.run("whole batch")
    for form in case.forms:
        case.run(form)
        whole = form == "whole batch"
        rows.append(
            {
                "form": form,
                "time": None if whole else slower(case, form, "whole batch", effort.pairs),
                "peak": peak("contrast", form, sizes, small, peer=peer),
                "apart": None if whole else apart(double, form, "whole batch"),
                "lines": None if whole else case.lines(form),
            }
        )
    spelled = [
        [
            row["form"],
            "1" if row["time"] is None else _ratio(row["time"]),
            f"{row['peak']:.0f}",
            "–" if row["apart"] is None else f"{row['apart']:.0e}",
            "–" if row["lines"] is None else str(row["lines"]),
        ]
        for row in rows
    ]
    heads = ["form", "time / whole batch", "process, MB above start", "gradients off by", "lines"]
    note = ""
    if "GradCache" not in case.forms:
        note = "\n\nGradCache: not there; name a checkout of it with `--peer grad-cache=DIR`."
    return {"rows": rows, "table": markdown(heads, spelled) + note}


def _ratio(found: Estimate) -> str:
    return f"**{found.median:.2f}** {_range(found)}"


def _range(found: Estimate) -> str:
    return f"({found.low:.2f}–{found.high:.2f})"


# -- the command ----------------------------------------------------------------------------------

TABLES = {
    "trunk": (
        "A trunk as costly as its blocks",
        "4 layers of 256, then 4 more on each block of rows.",
    ),
    "exactness": ("Exactness", "float64; with dropout the forms draw the same numbers."),
    "pairwise": (
        "All pairs of n codes",
        "d = 64, behind an encoder, through one hidden layer that sees both of a pair.",
    ),
    "sequences": (
        "Truncated back-propagation",
        "An LSTM of 64, windows of 50 steps and a last one of 10, a step of the optimizer after "
        "each (`backward_windows`: one after all). Off by: relative to the loop by hand, which "
        "weighs each window by its steps.",
    ),
    "contrast": (
        "A large contrastive batch",
        "Two views of each item, an encoder with dropout, chunks of a sixteenth.",
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the tables as they are ready, and write the JSON."""
    options = _options(arguments)
    if options.child:
        print(json.dumps(_child(json.loads(options.child))))
        return 0
    machine.one_thread()
    effort, peer = EFFORTS[options.effort], dict(options.peer).get("grad-cache")
    results: dict[str, Any] = {"machine": machine.description(), "effort": options.effort}
    found = results["machine"]
    _say(
        "# What the primitives save and cost",
        f"{found['cpu']}, {found['cores']} cores, {found['system']}; Python {found['python']}, "
        f"torch {found['torch']}, one thread; onegraph {found['onegraph']}. "
        f"Load of the machine at the start: {found['load']}.",
        "Ratios are medians of computing time over pairs of runs that alternate in one process, "
        "with the 95 % interval of the median. Process memory is the peak of a fresh process, "
        "less what it had before the run.",
    )
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "trunk": lambda: trunk(effort),
        "exactness": lambda: exactness(effort, peer),
        "pairwise": lambda: pairwise(effort),
        "sequences": lambda: sequences(effort),
        "contrast": lambda: contrast(effort, peer),
    }
    for name in options.tables:
        title, about = TABLES[name]
        results[name] = measures[name]()
        _say(f"## {title}", about, results[name].pop("table"))
    if options.json:
        text = json.dumps(results, indent=1, default=Estimate.as_dict)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", dest="effort", action="store_const", const="quick", help="a first impression"
    )
    effort.add_argument("--effort", choices=EFFORTS, help="how much to measure (default: full)")
    parser.add_argument("--json", metavar="FILE", help="also write every number there")
    parser.add_argument(
        "--peer",
        type=_peer,
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="a checkout of something to compare with: " + ", ".join(PEERS),
    )
    parser.add_argument(
        "--tables",
        type=lambda text: text.split(","),
        default=list(TABLES),
        metavar="NAME,...",
        help="only these of: " + ", ".join(TABLES),
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.set_defaults(effort="full")
    options = parser.parse_args(arguments)
    for name in options.tables:
        if name not in TABLES:
            parser.error(f"{name!r} is none of {', '.join(TABLES)}")
    return options


def _peer(text: str) -> tuple[str, str]:
    name, _, folder = text.partition("=")
    if name not in PEERS or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIR of one of {', '.join(PEERS)}")
    return name, str(Path(folder).resolve())


def _say(*parts: str) -> None:
    print(*parts, sep="\n\n", end="\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
