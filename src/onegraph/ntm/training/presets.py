"""Ready-made options, one preset a published result, and the numbers that result stands for.

Sources: Graves, Wayne and Danihelka, "Neural Turing Machines" (2014, arXiv:1410.5401), whose tables
1 and 2 hold the settings of the feed-forward and the LSTM controller; Graves, "Generating Sequences
With Recurrent Neural Networks" (2013, arXiv:1308.0850), equations 38 to 45, for the RMSProp that
the former uses; Collier and Beel, "Implementing Neural Turing Machines" (2018, arXiv:1807.08518),
with the settings of the code that its authors published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onegraph.ntm.training.errors import USAGE, RunError
from onegraph.ntm.training.options import Options

_GRAVES = "Graves et al. 2014, arXiv:1410.5401"
_COLLIER = "Collier and Beel 2018, arXiv:1807.08518"


@dataclass(frozen=True)
class Preset:
    """Options with where they come from.

    Args:
        options: what a run starts from; `options.preset` is the preset's name.
        source: who published the result, and where in the paper it stands.
        published: the numbers that were published.
        here: what was measured with this package, or that nothing was yet.
    """

    options: Options
    source: str
    published: str
    here: str = "untested with this package"

    @property
    def name(self) -> str:
        """The preset's name."""
        return self.options.preset


def _graves(task: str, rate: float, steps: int, **model: object) -> Options:
    """The paper's training: one sequence a step, RMSProp, components clipped to ±10."""
    return Options(
        task=task,
        preset=f"{task}-graves",
        steps=steps,
        optimizer="graves",
        lr=rate,
        clip_value=10.0,
        loss="sequence",
        model={"memory": [128, 20], **model},
        save_every=1000,
        log_every=100,
    )


def _collier(task: str, **task_options: object) -> Options:
    """The published code's defaults, with the constant memory that the paper recommends."""
    return Options(
        task=task,
        preset=f"{task}-collier",
        steps=31_250,
        batch=32,
        optimizer="adam",
        lr=1e-3,
        clip_norm=50.0,
        loss="sequence",
        task_options=dict(task_options),
        model={"memory": [128, 20], "hidden_size": 100, "clip": 20.0, "memory_init": "constant"},
        save_every=250,
        log_every=25,
    )


_ALL = (
    Preset(
        Options(
            task="copy",
            preset="copy",
            steps=40_000,
            optimizer="graves",
            lr=1e-4,
            clip_norm=10.0,
            loss="sequence",
            task_options={"longest": 20},
            model={"memory": [128, 20], "hidden_size": 100},
            save_every=1000,
            log_every=100,
        ),
        f"{_GRAVES}, figures 3 and 4; the paper's optimiser, but the gradients' norm is clipped, "
        "not each component",
        "near 0 bits a sequence after 100,000 to 200,000 sequences; local errors at length 120",
    ),
    Preset(
        Options(
            task="copy",
            preset="demo",
            steps=3000,
            batch=4,
            lr=5e-4,
            clip_norm=0.5,
            task_options={"longest": 10},
            model={"memory": [128, 20], "hidden_size": 100},
            save_every=300,
            log_every=20,
        ),
        "this package: the copy task, made small enough for one processor core and a minute",
        "none",
        "seeds 1 to 3: no wrong bit at length 10 and none at 20, of 51,200 and 102,400, on a CPU",
    ),
    Preset(
        _graves("copy", 1e-4, 200_000, controller="lstm", hidden_size=100),
        f"{_GRAVES}, section 4.1, table 2 (copy: 1 head, controller 100, memory 128 × 20, 1e-4)",
        "near 0 bits a sequence after 100,000 to 200,000 sequences; local errors at length 120",
    ),
    Preset(
        replace(
            _graves("repeat-copy", 1e-4, 40_000, controller="lstm", hidden_size=100),
            preset="repeat-copy", clip_value=None, clip_norm=10.0,
            lr_end=5e-6, lr_hold=14_000, lr_steps=34_000,
        ),
        f"{_GRAVES}, section 4.2; as the preset copy, and the learning rate falls late",
        "near 0 bits; goes on to length 20 and 20 repeats, the end marker wrong after 10 repeats",
    ),
    Preset(
        _graves("repeat-copy", 1e-4, 200_000, controller="lstm", hidden_size=100),
        f"{_GRAVES}, section 4.2, table 2 (repeat copy: 1 head, 100, 128 × 20, 1e-4)",
        "near 0 bits; goes on to length 20 and 20 repeats, the end marker wrong after 10 repeats",
    ),
    Preset(
        Options(
            task="associative-recall",
            preset="associative-recall",
            steps=40_000,
            optimizer="rmsprop-uncentred",
            lr=1e-4,
            clip_value=10.0,
            loss="bit",
            model={"memory": [128, 20], "controller": "lstm", "hidden_size": 100},
            save_every=1000,
            log_every=100,
        ),
        f"{_GRAVES}, section 4.3, with the LSTM controller; the optimiser's settings are those of "
        "the published code of loudinthecloud/pytorch-ntm",
        "near 0 bits after 100,000 episodes; 12 items nearly perfect, under 1 bit at 15 items",
    ),
    Preset(
        _graves("associative-recall", 1e-4, 100_000, controller="feedforward", hidden_size=256,
                read_heads=4, write_heads=4),
        f"{_GRAVES}, section 4.3, table 1 (associative: 4 heads, 256, 128 × 20, 1e-4)",
        "near 0 bits after 30,000 episodes; 12 items nearly perfect, under 1 bit at 15 items",
    ),
    Preset(
        Options(
            task="ngrams",
            preset="ngrams",
            steps=15_000,
            batch=16,
            optimizer="adam",
            lr=1e-3,
            lr_end=1e-4,
            lr_steps=15_000,
            clip_value=10.0,
            clip_norm=10.0,
            loss="sequence",
            model={"memory": [128, 20], "controller": "lstm", "hidden_size": 100},
            save_every=500,
            log_every=50,
        ),
        f"{_GRAVES}, section 4.4; the optimiser's settings are this package's own",
        "within about 2 bits a sequence of the Bayes-optimal estimator, never reaching it",
    ),
    Preset(
        _graves("ngrams", 3e-5, 200_000, controller="lstm", hidden_size=100),
        f"{_GRAVES}, section 4.4, table 2 (N-grams: 1 head, 100, 128 × 20, 3e-5)",
        "within about 2 bits a sequence of the Bayes-optimal estimator, never reaching it",
    ),
    Preset(
        Options(
            task="priority-sort",
            preset="priority-sort",
            steps=8000,
            batch=16,
            optimizer="adam",
            lr=5e-4,
            clip_norm=10.0,
            loss="sequence",
            model={"memory": [128, 20], "controller": "feedforward", "hidden_size": 512,
                   "read_heads": 8, "write_heads": 8},
            save_every=500,
            log_every=50,
        ),
        f"{_GRAVES}, section 4.5; the optimiser's settings are this package's own",
        "well below an LSTM's cost; 8 heads were needed for the best result",
    ),
    Preset(
        _graves("priority-sort", 3e-5, 200_000, controller="feedforward", hidden_size=512,
                read_heads=8, write_heads=8),
        f"{_GRAVES}, section 4.5, table 1 (priority sort: 8 heads, 512, 128 × 20, 3e-5)",
        "well below an LSTM's cost; 8 heads were needed for the best result",
    ),
    Preset(
        _collier("copy", longest=20),
        f"{_COLLIER}, the copy task with the constant memory",
        "converges about 3.5 times as fast as a learned initial memory; a random one fails",
    ),
    Preset(
        _collier("associative-recall", fewest=2, most=6),
        f"{_COLLIER}, the associative recall task with the constant memory",
        "converges faster than with a learned initial memory",
    ),
)  # fmt: skip

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _ALL}


def preset_for(task: str, name: str | None) -> Preset:
    """The named preset, or the first one of a task.

    Raises:
        RunError: there is none of that name, or it is of another task.
    """
    if name is None:
        found = next((preset for preset in _ALL if preset.options.task == task), None)
        if found is None:
            known = ", ".join(dict.fromkeys(preset.options.task for preset in _ALL))
            raise RunError(f"there is no task {task!r}; known are {known}", USAGE)
        return found
    if name not in PRESETS:
        raise RunError(f"there is no preset {name!r}; known are {', '.join(PRESETS)}", USAGE)
    if PRESETS[name].options.task != task:
        raise RunError(
            f"the preset {name} is for the task {PRESETS[name].options.task}, not {task}", USAGE
        )
    return PRESETS[name]
