"""What attention maps are worth to a memory: `HierarchicalNTM` on `needle`, and two baselines.

    python -m benchmarks.needle [--seeds 3] [--only ROW] [--quick] [--out FILE]

Six models of one size see the same documents in the same order, as often. They are trained at
distances up to the training distance, whole documents at a time (a window that ends between a
fact and its question would give the fact no gradient), and evaluated at that distance and at four
times it on documents that all share. The hierarchical model's encoders know no positions: order
is in its maps alone. The baselines are told each token's place in its segment as an embedding,
which the hierarchical model is not. Three more rows show what the hierarchical model reaches
without maps when sinusoids of the places are added to its tokens, and what the baselines do when
they are trained for four times as long.

Sizes and learning rates were chosen by hand, for the hierarchical model on an earlier form of the
task with seeds 0 and 1; how its heads begin and how its maps are fused on seeds 10 to 13, of which
no row reports any.

Results are kept in the file as they come; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.machine import one_thread
from benchmarks.tables import markdown
from onegraph.ntm.hierarchy import HierarchicalNTM, sinusoids
from onegraph.ntm.needle import Needle

TRAINING_DISTANCE = 8
TASK = Needle(distance=TRAINING_DISTANCE, nearest=1)
STEPS, BATCH, EVALUATED = 1000, 16, 512
OUT = Path("benchmarks/results/needle.json")


class LSTM(nn.Module):
    """One layer over all tokens; a segment is answered after its last token."""

    def __init__(self, task: Needle, size: int = 32, hidden: int = 87) -> None:
        super().__init__()
        self.embedding = nn.Embedding(task.vocabulary, size)
        self.places = nn.Embedding(task.length, size)
        self.lstm = nn.LSTM(size, hidden)
        self.classify = nn.Linear(hidden, task.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(S, B, L) to (S, B, classes)."""
        x = self.embedding(tokens) + self.places.weight
        y, _ = self.lstm(x.transpose(1, 2).flatten(0, 1))
        logits: Tensor = self.classify(y[tokens.shape[2] - 1 :: tokens.shape[2]])
        return logits


class Transformer(nn.Module):
    """Two causal layers over all tokens; a segment is answered at its last token."""

    def __init__(self, task: Needle, size: int = 40, heads: int = 4, inner: int = 174) -> None:
        super().__init__()
        self.size, self.heads = size, heads
        self.embedding = nn.Embedding(task.vocabulary, size)
        self.places = nn.Embedding(task.length, size)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "before": nn.LayerNorm(size),
                    "project": nn.Linear(size, 3 * size),
                    "join": nn.Linear(size, size),
                    "mlp": nn.Sequential(
                        *(nn.LayerNorm(size), nn.Linear(size, inner)),
                        *(nn.ReLU(), nn.Linear(inner, size)),
                    ),
                }
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(size)
        self.classify = nn.Linear(size, task.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(S, B, L) to (S, B, classes)."""
        x = (self.embedding(tokens) + self.places.weight).transpose(0, 1).flatten(1, 2)
        x = x + sinusoids(x.shape[1], self.size)
        for layer in self.layers:
            parts = layer["project"](layer["before"](x)).unflatten(-1, (3 * self.heads, -1))
            query, key, value = parts.transpose(1, 2).chunk(3, 1)
            found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + layer["join"](found.transpose(1, 2).flatten(2))
            x = x + layer["mlp"](x)
        last = x[:, tokens.shape[2] - 1 :: tokens.shape[2]].transpose(0, 1)
        logits: Tensor = self.classify(self.norm(last))
        return logits


class Hierarchical(nn.Module):
    """The whole system, with these maps."""

    def __init__(self, task: Needle, *maps: str, positions: bool = False) -> None:
        super().__init__()
        self.model = HierarchicalNTM(
            task.vocabulary,
            task.classes,
            reach=task.farthest + 1,
            maps=maps,
            positions=positions,
            # A fact is looked up by its name: rows that differ from the start, and no shifting.
            memory=(32, 32),
            memory_init="random",
            shift_range=0,
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """(S, B, L) to (S, B, classes)."""
        output, _ = self.model(tokens)
        assert output.classes is not None
        return output.classes


# The name of each row, how its model is made, and its learning rate.
MODELS: dict[str, tuple[Callable[[Needle], nn.Module], float]] = {
    "hierarchical, both maps": (lambda task: Hierarchical(task, "intra", "hier"), 5e-3),
    "hierarchical, none": (lambda task: Hierarchical(task), 5e-3),
    "LSTM": (LSTM, 5e-3),
    "hierarchical, intra alone": (lambda task: Hierarchical(task, "intra"), 5e-3),
    "hierarchical, hier alone": (lambda task: Hierarchical(task, "hier"), 5e-3),
    "transformer": (Transformer, 2e-3),
}
# Rows that are no part of the comparison of equals, with how much longer they are trained.
EXTRAS: dict[str, tuple[Callable[[Needle], nn.Module], float, int]] = {
    "none, but positions": (lambda task: Hierarchical(task, positions=True), 5e-3, 1),
    "LSTM, 4 × the steps": (LSTM, 5e-3, 4),
    "transformer, 4 × the steps": (Transformer, 2e-3, 4),
}
ORDER = (
    *("hierarchical, both maps", "hierarchical, intra alone", "hierarchical, hier alone"),
    *("hierarchical, none", "LSTM", "transformer", *EXTRAS),
)


def train(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one model and evaluate it at both distances; the extra rows may take more steps."""
    make, rate, times = EXTRAS[name] if name in EXTRAS else (*MODELS[name], 1)
    torch.manual_seed(seed)
    model = make(TASK)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, rate)
    count = steps * times
    # Warm up for 50 steps; over the last three tenths go down to zero.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 50, (count - step) / (0.3 * count))
    )
    generator = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    for _ in range(count):
        batch = TASK.draw(BATCH, generator)
        optimizer.zero_grad()
        TASK.loss(model(batch.tokens), batch).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
    result: dict[str, Any] = {
        "model": name,
        "seed": seed,
        "steps": steps,
        "parameters": sum(each.numel() for each in parameters),
        "seconds": time.perf_counter() - start,
    }
    for far in (1, 4):
        result[f"at {far}"] = evaluate(model, Needle(distance=far * TRAINING_DISTANCE))
    return result


def evaluate(model: nn.Module, task: Needle) -> list[float]:
    """The shares of late questions of which all, who, where and which are right."""
    # No training run draws from this seed.
    batch = task.draw(EVALUATED, torch.Generator().manual_seed(1_000_003))
    with torch.no_grad():
        right = task.right(model(batch.tokens), batch).double()
    return [float(right.amin(-1).mean()), *right.mean(0).tolist()]


def table(runs: list[dict[str, Any]]) -> str:
    """Means over the seeds, the range beside them."""
    rows = []
    for name in ORDER:
        mine = [run for run in runs if run["model"] == name]
        if not mine:
            continue
        cells = [name, f"{mine[0]['parameters']:,}", f"{len(mine)}"]
        for key in ("at 1", "at 4"):
            whole = [100 * run[key][0] for run in mine]
            where, which = (100 * mean(run[key][part] for run in mine) for part in (2, 3))
            cells.append(f"**{mean(whole):.1f}** ({min(whole):.1f}–{max(whole):.1f})")
            cells.append(f"{where:.1f} / {which:.1f}")
        rows.append([*cells, f"{mean(run['seconds'] for run in mine):.0f}"])
    heads = ["model", "parameters", "seeds", f"right at {TRAINING_DISTANCE}, %", "where / which"]
    heads += [f"right at {4 * TRAINING_DISTANCE}, %", "where / which", "seconds a run"]
    return markdown(heads, rows)


def chance(task: Needle) -> float:
    """The share right of one who knows the name and guesses the rest."""
    return 1 / math.prod(task.answers[1:])


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=ORDER, help="this row, and no other")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the training")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    one_thread()
    steps = STEPS // 20 if options.quick else STEPS
    runs = json.loads(options.out.read_text()) if options.out.exists() else []
    names = [options.only] if options.only else [*MODELS, *EXTRAS]
    jobs = [(name, seed) for name in names for seed in range(options.seeds)]
    for name, seed in jobs:
        known = [(run["model"], run["seed"], run["steps"]) for run in runs]
        if (name, seed, steps) in known:
            continue
        runs.append(train(name, seed, steps))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        draft = options.out.with_suffix(".part")
        draft.write_text(json.dumps(runs, indent=1))
        os.replace(draft, options.out)
        print(f"{name}, seed {seed}: {runs[-1]['at 1']} {runs[-1]['at 4']}", flush=True)
    chosen = [
        run
        for run in runs
        if run["model"] in names and run["steps"] == steps and run["seed"] < options.seeds
    ]
    print(table(chosen))
    print(f"{steps} steps of {BATCH} documents; guessing is right in {100 * chance(TASK):.1f} %.")


if __name__ == "__main__":
    main()
