"""Paired measurements: a bare run and a watched one side by side, and what their ratios say."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.programs import under_program_frames

RESAMPLES = 2_000
# The first turns of a loop differ: allocations, and onegraph's own look at the first graphs.
# The first turns of a line cost more: the graph is walked in three of them, and what the running
# functions hold is looked at in the 4th, 6th, 8th, 12th, 16th ...
WARM_UP = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds a run took: by the clock, and of the process's own computing.

    On a machine that others use too, the second says more.
    """

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median over pairs with its spread and a 95 % bootstrap interval of the median."""

    median: float
    least: float
    most: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float], seed: int = 0) -> Estimate:
        """The estimate from one value a pair."""
        if not values:
            raise ValueError("nothing was measured")
        chance = random.Random(seed)
        medians = sorted(median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
        return cls(
            median=median(values),
            least=min(values),
            most=max(values),
            low=medians[int(0.025 * RESAMPLES)],
            high=medians[int(0.975 * RESAMPLES)],
            count=len(values),
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def timed(action: Callable[[], object], times: int = 1, warm_up: int = 0) -> Sample:
    """Run ``action``, and return what one run took on average after the warm-up."""
    wall = cpu = 0.0
    # One loop for both: onegraph knows a call by its line, so another loop would be new to it.
    for turn in range(warm_up + times):
        if turn == warm_up:
            wall, cpu = time.perf_counter(), time.process_time()
        action()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Sample(wall / times, cpu / times)


def measure_block(
    step: Callable[[], object], watch: Callable[[], Any], steps: int, frames: int
) -> Sample:
    """What one step takes inside ``watch``, averaged over ``steps`` after a warm-up.

    Args:
        frames: how many frames of this program's own lie beneath the step.
    """
    gc.collect()
    with watch():
        sample: Sample = under_program_frames(lambda: timed(step, steps, WARM_UP), frames)
    return sample


def in_pairs(
    bare: Callable[[int], Sample], watched: Callable[[int], Sample], pairs: int
) -> list[tuple[Sample, Sample]]:
    """(bare, watched) of each pair; who goes first alternates, so that a drift cancels.

    Both get a number of frames to add, which differs from pair to pair. CPython keeps frames in
    chunks of 16 KB: a function that is called just at the end of one pays for a new chunk at every
    call (seen: 1.8 instead of 1.35), and the depth of the stack decides which function that is.
    """
    result = []
    for pair in range(pairs):
        frames = 7 * (pair % 8)
        if pair % 2:
            other = watched(frames)
            result.append((bare(frames), other))
        else:
            one = bare(frames)
            result.append((one, watched(frames)))
    return result


def ratios(pairs: Iterable[tuple[Sample, Sample]]) -> dict[str, Estimate]:
    """Estimates of watched over bare, by ``wall`` and by ``cpu``."""
    pairs = list(pairs)
    return {
        "wall": Estimate.of([other.wall / bare.wall for bare, other in pairs]),
        "cpu": Estimate.of([other.cpu / bare.cpu for bare, other in pairs]),
    }


def differences(pairs: Iterable[tuple[Sample, Sample]]) -> dict[str, Estimate]:
    """Estimates of watched minus bare in seconds, by ``wall`` and by ``cpu``."""
    pairs = list(pairs)
    return {
        "wall": Estimate.of([other.wall - bare.wall for bare, other in pairs]),
        "cpu": Estimate.of([other.cpu - bare.cpu for bare, other in pairs]),
    }
