"""What a Neural Turing Machine is measured beside: a long short-term memory without a memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from onegraph.ntm import tasks
from onegraph.ntm.training.evaluate import count_bits, generator
from onegraph.ntm.training.optimizers import make_optimizer, set_rate
from onegraph.ntm.training.options import Options, make_task

LSTMState = tuple[Tensor, Tensor]


class LSTM(nn.Module):
    """torch's own LSTM with a linear output, called as `onegraph.ntm.NTM` is.

    Args:
        input_size, output_size: the widths of an input and of an output.
        hidden_size: of each layer.
        layers: how many.
    """

    def __init__(self, input_size: int, output_size: int, hidden_size: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, layers)
        self.output = nn.Linear(hidden_size, output_size)

    def forward(self, x: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """(T, B, input_size) to (T, B, output_size), and the state after it."""
        y, after = self.lstm(x, state)
        logits: Tensor = self.output(y)
        return logits, after


def train_baseline(
    options: Options, hidden_size: int, layers: int, look: Callable[[nn.Module, int], bool]
) -> LSTM:
    """Train an LSTM on the batches that a run of these options sees.

    Args:
        options: their `model` is not looked at.
        look: called with the model and the step after every `save_every` steps; true ends it.
    """
    task = make_task(options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = LSTM(task.input_size, task.output_size, hidden_size, layers)
    parameters = list(model.parameters())
    optimizer = make_optimizer(options, parameters)
    for step in range(1, options.steps + 1):
        batch = task.draw(options.batch, generator(options.seed, "batch", step))
        count = count_bits(batch) if options.loss == "bit" else options.batch
        nats = tasks.loss(model(batch.inputs)[0], batch) * (math.log(2) * options.batch)
        optimizer.zero_grad()
        (nats / count).backward()
        if options.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, options.clip_value)
        if options.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, options.clip_norm)
        set_rate(optimizer, options, step)
        optimizer.step()
        if step % options.save_every == 0 and look(model, step):
            break
    return model
