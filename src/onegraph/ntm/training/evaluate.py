"""What a trained model can do: errors on fresh sequences, and a look at what its memory does."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onegraph.ntm import addressing, tasks
from onegraph.ntm.cell import beside
from onegraph.ntm.layer import NTM
from onegraph.ntm.tasks import Batch, NGrams, Task
from onegraph.ntm.training.checkpoint import Run
from onegraph.ntm.training.errors import USAGE, RunError
from onegraph.ntm.training.options import Options, make_model, make_task

# Which options of a task its "length" sets; all of them to the same number.
LENGTHS: dict[str, tuple[str, ...]] = {
    "copy": ("shortest", "longest"),
    "repeat-copy": ("shortest", "longest"),
    "associative-recall": ("fewest", "most"),
    "ngrams": ("length",),
    "priority-sort": ("shown",),
}
# What one sequence of such a length consists of.
UNITS = {
    "copy": "vectors",
    "repeat-copy": "vectors",
    "associative-recall": "items",
    "ngrams": "bits",
    "priority-sort": "vectors",
}


@dataclass(frozen=True)
class Evaluation:
    """How a model did on fresh sequences.

    Args:
        step: how many steps it was trained.
        length: of the sequences, in `UNITS` of the task.
        repeats: how often each was to be repeated, where the task has that.
        sequences: how many there were.
        bits: how many bits counted, over all sequences.
        errors: how many of them came out wrong.
        cost: bits a sequence, the cross-entropy to base 2.
        bayes: the cost of the best possible estimator, where it is known.
    """

    step: int
    length: int
    repeats: int | None
    sequences: int
    bits: int
    errors: int
    cost: float
    bayes: float | None = None

    @property
    def rate(self) -> float:
        """The share of bits that came out wrong."""
        return self.errors / self.bits


@dataclass(frozen=True)
class Trace:
    """One sequence through a model, step by step; all on the CPU.

    Args:
        batch: the sequence, a batch of one.
        outputs: (T, Dout), probabilities.
        adds: (T, W), what the writing heads add.
        reads: (T, W), what the reading heads read.
        read_weightings: (T, N), summed over the heads that read.
        write_weightings: (T, N), summed over the heads that write.
        memory: (N, W), after the last step.
    """

    batch: Batch
    outputs: Tensor
    adds: Tensor
    reads: Tensor
    read_weightings: Tensor
    write_weightings: Tensor
    memory: Tensor


def generator(seed: int, *what: object) -> torch.Generator:
    """A source of random numbers that the seed and the purpose decide."""
    return torch.Generator().manual_seed(derived_seed(seed, *what))


def derived_seed(seed: int, *what: object) -> int:
    """A seed for a purpose: equal arguments give equal seeds, others unrelated ones."""
    text = "/".join(map(str, (seed, *what)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def sized(
    options: Options, length: int | None, repeats: int | None = None
) -> tuple[Options, int, int | None]:
    """The options with a task of one length (by default its longest), that length, and repeats.

    Raises:
        RunError: the task has no such size.
    """
    task = make_task(options)
    names = LENGTHS[options.task]
    length = int(getattr(task, names[-1])) if length is None else length
    changes: dict[str, Any] = dict.fromkeys(names, length)
    if options.task == "priority-sort":
        # As many of those shown as in training, rounded.
        changes["asked"] = max(1, round(length * task.asked / task.shown))  # type: ignore[attr-defined]
    if options.task == "repeat-copy":
        repeats = int(task.most) if repeats is None else repeats  # type: ignore[attr-defined]
        changes |= {"fewest": repeats, "most": repeats}
    elif repeats is not None:
        raise RunError(f"the task {options.task} repeats nothing", USAGE)
    found = dataclasses.replace(options, task_options={**options.task_options, **changes})
    make_task(found)
    return found, length, repeats


def trained(run: Run) -> tuple[NTM, Options, int, list[dict[str, float]], list[str]]:
    """A run's model as its newest whole checkpoint has it.

    Returns:
        The model, the options, the step, the learning curve, and a line for each broken checkpoint.

    Raises:
        RunError: there is no run, or no checkpoint.
    """
    options = run.options()
    found, complaints = run.load()
    if found is None:
        raise RunError(f"{run} has no checkpoint yet", USAGE)
    model = make_model(options, make_task(options))
    try:
        model.load_state_dict(found.model)
    except (RuntimeError, KeyError) as error:
        line = str(error).partition("\n")[2].strip().partition("\n")[0]
        raise RunError(
            f"{run}: the checkpoint does not fit the run's options: {line}", USAGE
        ) from None
    return model.eval(), options, found.step, found.extra.get("curve", []), complaints


@torch.no_grad()
def evaluate(
    model: nn.Module,
    options: Options,
    step: int,
    *,
    length: int | None = None,
    repeats: int | None = None,
    sequences: int = 640,
    batch: int = 64,
    seed: int = 0,
) -> Evaluation:
    """Run a model over fresh sequences of one length.

    Args:
        length: in `UNITS` of the task; by default the longest of training.
        repeats: for the task that has them; by default the most of training.
        sequences: how many.
        batch: how many at once.
        seed: decides the sequences; none of them is one of training.
    """
    options, length, repeats = sized(options, length, repeats)
    task = make_task(options)
    source = generator(seed, "evaluate", length, repeats)
    bits, errors, cost, bayes = 0, 0, 0.0, 0.0
    for start in range(0, sequences, batch):
        size = min(batch, sequences - start)
        drawn = task.draw(size, source)
        logits = _outputs(model, drawn)
        bits += count_bits(drawn)
        errors += int(tasks.bit_errors(logits, drawn).sum())
        cost += float(tasks.loss(logits, drawn)) * size
        if isinstance(task, NGrams):
            bayes += float(task.bayes_bits(drawn).sum())
    best = bayes / sequences if isinstance(task, NGrams) else None
    return Evaluation(step, length, repeats, sequences, bits, errors, cost / sequences, best)


def count_bits(batch: Batch) -> int:
    """How many bits of a batch count."""
    return int(batch.mask.sum()) * batch.targets.shape[-1]


def _outputs(model: nn.Module, batch: Batch) -> Tensor:
    like = next(model.parameters())
    logits: Tensor = model(batch.inputs.to(like.device, like.dtype))[0]
    return logits.cpu().to(batch.targets.dtype)


@torch.no_grad()
def trace(model: NTM, task: Task, seed: int = 0) -> Trace:
    """Follow one fresh sequence through a model."""
    batch = task.draw(1, generator(seed, "trace"))
    cell, like = model.cell, model.output.weight
    raw: list[Tensor] = []
    # The heads' numbers are no part of the state; a hook sees them without a second computation.
    hook = cell.heads.register_forward_hook(lambda _, __, out: raw.append(out))
    state = model.initial_state(1)
    outputs, reads, weightings = [], [], []
    try:
        for x in batch.inputs.to(like.device, like.dtype).unbind(0):
            out, state = cell.step(x, state)
            outputs.append(model.output(beside(out, state.reads)).sigmoid())
            reads.append(state.reads.sum(1))
            weightings.append(state.weightings)
    finally:
        hook.remove()
    heads, write_heads = cell.read_heads + cell.write_heads, cell.write_heads
    adds = [
        addressing.activate(
            numbers.to(state.memory.dtype), heads, write_heads, cell.width,
            clip=cell.clip, tanh=cell.tanh,
        ).add.sum(1)
        for numbers in raw
    ]  # fmt: skip
    looked = torch.cat(weightings).float().cpu()
    return Trace(
        batch,
        _joined(outputs),
        _joined(adds),
        _joined(reads),
        looked[:, : cell.read_heads].sum(1),
        looked[:, cell.read_heads :].sum(1),
        state.memory[0].float().cpu(),
    )


def _joined(steps: list[Tensor]) -> Tensor:
    return torch.cat(steps).float().cpu()
