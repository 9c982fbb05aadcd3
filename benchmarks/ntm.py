"""How fast a Neural Turing Machine trains: beside an LSTM, beside its own slower ways, and peers.

    python -m benchmarks.ntm [--quick] [--peer pytorch-ntm=DIR]

A step is forward, backward and optimiser, on the copy task of 8 bits and length 20 (41 time steps)
with a memory of 128 × 20, an LSTM of 100, one read and one write head, on one thread. All ways are
timed in turns in one process; a ratio is the median over the turns of the ratio within a turn.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.machine import (
    description,
    environment,
    one_thread,
    peak_mb,
    resident_mb,
    run_module,
)
from benchmarks.tables import markdown, verdict
from onegraph.ntm import NTM, NTMCell
from onegraph.ntm.tasks import Copy
from onegraph.ntm.window import choice, kernel

Step = Callable[[], object]

BITS, LENGTH, SLOTS, WIDTH, HIDDEN = 8, 20, 128, 20, 100
BATCHES = (1, 16, 64)
# At most this many times the LSTM's time, and at least this many times as fast as the peer.
AGAINST_LSTM = {1: 1.8, 16: 4.5, 64: 4.5}
AGAINST_PEER = {"pytorch-ntm": {1: 45, 16: 22, 64: 25}}
PEAK_MB = 380
LONG = (10, 100, 500, 1000, 2000, 5000)
# What else a user may want, and how much more than its arithmetic it may cost.
VARIANTS = {
    "as above": {},
    "8 read and 8 write heads": {"read_heads": 8, "write_heads": 8},
    "feed-forward controller": {"controller": "feedforward"},
    "memory of 1024 × 64": {"memory": (1024, 64)},
}
ALLOWANCE = 3.0


class LSTM(nn.Module):
    """The lower bound: torch's own, of the same size."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(BITS + 1, HIDDEN)
        self.output = nn.Linear(HIDDEN, BITS)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        """(T, B, 9) to (T, B, 8)."""
        return self.output(self.lstm(x)[0]), None


def training_step(model: nn.Module, batch: int, steps: int | None = None) -> Step:
    """A step of this model on one batch; ``steps`` makes the sequence any other length."""
    length = LENGTH if steps is None else (steps - 1) // 2
    task = Copy(BITS, shortest=length, longest=length)
    data = task.draw(batch, torch.Generator().manual_seed(0))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        logits, _ = model(data.inputs)
        F.binary_cross_entropy_with_logits(
            logits[length + 1 :], data.targets[length + 1 :]
        ).backward()
        optimizer.step()

    return step


def by(way: str, step: Step) -> Step:
    """The step with windows going one way: "kernel", "Function" or "cell"."""
    load, plan = choice.kernel.load, NTMCell._plan

    def run() -> None:
        choice.kernel.load = lambda: way == "kernel"
        if way == "cell":
            NTMCell._plan = lambda *_: None
        try:
            step()
        finally:
            choice.kernel.load, NTMCell._plan = load, plan

    return run


def pytorch_ntm(folder: Path, batch: int) -> Step:
    """loudinthecloud/pytorch-ntm, trained as its own train.py does."""
    sys.path.insert(0, str(folder))
    module = importlib.import_module("ntm.aio")
    net = module.EncapsulatedNTM(BITS + 1, BITS, HIDDEN, 1, 1, SLOTS, WIDTH)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4, momentum=0.9, alpha=0.95)
    data = Copy(BITS, LENGTH, LENGTH).draw(batch, torch.Generator().manual_seed(0))
    shown, wanted = data.inputs[: LENGTH + 1], data.targets[LENGTH + 1 :]

    def step() -> None:
        optimizer.zero_grad()
        net.init_sequence(batch)
        for x in shown:
            net(x)
        y = torch.stack([net()[0] for _ in range(LENGTH)])
        F.binary_cross_entropy(y, wanted).backward()
        for parameter in net.parameters():
            parameter.grad.clamp_(-10, 10)
        optimizer.step()

    return step


PEERS = {"pytorch-ntm": pytorch_ntm}


def in_turns(ways: dict[str, Step], turns: int, seconds: float) -> dict[str, list[float]]:
    """For each way the milliseconds a step in each turn; a turn of a way lasts about so long."""
    counts = {}
    for name, step in ways.items():
        step()
        begin = time.perf_counter()
        step()
        counts[name] = max(1, round(seconds / (time.perf_counter() - begin)))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, step in ways.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                step()
            found[name].append(1000 * (time.perf_counter() - begin) / counts[name])
    return found


def ratio(one: list[float], other: list[float]) -> float:
    """The median over the turns of one over the other."""
    return median(a / b for a, b in zip(one, other, strict=True))


def speed(turns: int, seconds: float, peers: dict[str, Path]) -> list[list[str]]:
    """The first table."""
    rows = []
    for batch in BATCHES:
        torch.manual_seed(0)
        make = {way: by(way, training_step(NTM(BITS + 1, BITS), batch)) for way in WAYS}
        ways = {"nn.LSTM": training_step(LSTM(), batch), **make}
        ways |= {name: PEERS[name](folder, batch) for name, folder in peers.items()}
        found = in_turns(ways, turns, seconds)
        ours = found["kernel" if kernel.load() else "Function"]
        against = ratio(ours, found["nn.LSTM"])
        row = [str(batch), *(f"{median(times):.2f}" for times in found.values())]
        row += [f"{against:.2f} ({verdict(against, AGAINST_LSTM[batch])})"]
        for name in peers:
            faster, target = ratio(found[name], ours), AGAINST_PEER[name][batch]
            row.append(f"{faster:.0f} (≥ {target} {'ok' if faster >= target else 'MISSED'})")
        rows.append(row)
        print(" ".join(row), file=sys.stderr, flush=True)
    return rows


WAYS = ("kernel", "Function", "cell")


def arithmetic(cell: NTMCell) -> int:
    """Multiplications of one time step of one sample, forward."""
    heads, area = cell.read_heads + cell.write_heads, cell.slots * cell.width
    products = sum(each.numel() for each in cell.parameters() if each.dim() == 2)
    taps = 2 * cell.shift_range + 1
    # Rows' lengths, cosines, reading, writing; along each weighting the taps and some twelve.
    memory = area * (1 + heads + cell.read_heads + 2 * cell.write_heads)
    return products + memory + heads * cell.slots * (taps + 12)


def variants(turns: int, seconds: float) -> list[list[str]]:
    """What eight heads, a feed-forward controller and a large memory cost."""
    models = {name: NTM(BITS + 1, BITS, **options) for name, options in VARIANTS.items()}
    found = in_turns({name: training_step(m, 16) for name, m in models.items()}, turns, seconds)
    base, times = arithmetic(models["as above"].cell), found["as above"]
    rows = []
    for name, model in models.items():
        cost, more = ratio(found[name], times), arithmetic(model.cell) / base
        rows.append([name, f"{median(found[name]):.2f}", f"{cost:.2f}", f"{more:.2f}",
                     f"{cost / more:.2f} ({verdict(cost / more, ALLOWANCE)})"])  # fmt: skip
    return rows


def lengths() -> list[list[str]]:
    """Time and memory of a step, over the number of time steps."""
    rows = []
    for steps in LONG:
        found = run_module("benchmarks.ntm", "--long", str(steps))
        rows.append([str(steps), f"{found['ms']:.1f}", f"{1000 * found['ms'] / steps:.1f}",
                     f"{found['mb']:.1f}", f"{1000 * found['mb'] / steps:.1f}"])  # fmt: skip
    return rows


def long(steps: int) -> dict[str, float]:
    """One length, batch 1: milliseconds a step, and how far memory rises above its start."""
    model = NTM(BITS + 1, BITS)
    # Once on little, so that what is loaded on first use is no part of it.
    training_step(model, 1, 11)()
    before = resident_mb()
    step = training_step(model, 1, steps)
    step()
    high = peak_mb() - before
    times = in_turns({"": step}, 5, 0.3)[""]
    return {"ms": min(times), "mb": high}


def peak(batch: int) -> float:
    """The most memory that a process has which trains at this batch size."""
    step = training_step(NTM(BITS + 1, BITS), batch)
    for _ in range(20):
        step()
    return peak_mb()


def processes(count: int, steps: int) -> float:
    """Seconds that a step of batch 64 takes, shared by so many processes of one thread each."""

    def seconds(steps: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *(f"--nproc-per-node={count}", "-m", "onegraph", "ntm", "train", "copy"),
                *("--cpu", "--no-tensorboard", "--out", f"{folder}/run", "--batch", "64"),
                *("--steps", str(steps), "--save-every", "1000000", "--set", "task.shortest=20"),
            ]
            begin = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment())
            return time.perf_counter() - begin

    # The difference leaves out what it takes to begin and to end.
    few = steps // 10
    return (seconds(steps) - seconds(few)) / (steps - few)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few and short turns")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=DIR",
                        help=f"a checkout to measure beside: {', '.join(PEERS)}")  # fmt: skip
    parser.add_argument("--long", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_thread()
    if options.long is not None:
        print(json.dumps(long(options.long)))
        return
    if options.peak is not None:
        print(json.dumps(peak(options.peak)))
        return
    peers = {}
    for text in options.peer:
        name, _, folder = text.partition("=")
        if name not in PEERS or not Path(folder).is_dir():
            parser.error(f"--peer {text}: known are {', '.join(PEERS)}, as NAME=DIR")
        peers[name] = Path(folder)
    turns, seconds = (3, 0.05) if options.quick else (15, 0.3)
    print(json.dumps(description()))
    if not kernel.load():
        print("The kernel is not built: `onegraph ntm build`.")
    heads = ["batch", "nn.LSTM, ms", *(f"{way}, ms" for way in WAYS), *(f"{n}, ms" for n in peers)]
    heads += ["over nn.LSTM", *(f"times as fast as {name}" for name in peers)]
    print(markdown(heads, speed(turns, seconds, peers)))
    found = run_module("benchmarks.ntm", "--peak", "64")
    print(f"\nPeak memory of the process at batch 64: {found:.0f} MB ({verdict(found, PEAK_MB)})\n")
    heads = ["batch 16", "ms", "times the time", "times the arithmetic", "the one over the other"]
    print(markdown(heads, variants(turns, seconds)))
    if not options.quick:
        one, two = processes(1, 600), processes(2, 600)
        print(f"\nBatch 64 by two processes: {one / two:.2f} times as fast as by one "
              f"({1000 * two:.1f} ms against {1000 * one:.1f} ms)")  # fmt: skip
    heads = ["time steps, batch 1", "ms", "µs a time step", "MB", "kB a time step"]
    print("\n" + markdown(heads, lengths()))


if __name__ == "__main__":
    main()
