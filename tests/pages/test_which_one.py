"""docs/which-one.md: its snippets run in order, as they stand."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.pages.running import ROOT

TEXT = (ROOT / "docs" / "which-one.md").read_text("utf-8")
SNIPPETS = re.findall(r"<!-- runs -->\n```python\n(.*?)```\n", TEXT, re.DOTALL)


def given() -> dict[str, Any]:
    """What the snippets use and do not make themselves, and the primitives."""
    torch.manual_seed(0)
    model, encoder, head = nn.LSTM(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
    pair_head = nn.Linear(8, 1)
    modules = nn.ModuleList([model, encoder, head, pair_head])
    loss_fn = nn.MSELoss()

    def step(data: Any, state: Any) -> Any:
        out, state = model(data[0], state)
        return loss_fn(out, data[1]), state

    names: dict[str, Any] = {
        "steps": [(torch.randn(2, 5, 3), torch.randn(2, 5, 4)) for _ in range(3)],
        "state": (torch.zeros(1, 5, 4), torch.zeros(1, 5, 4)),
        "inputs": torch.randn(10, 5, 3),
        "targets": torch.randn(10, 5, 4),
        "lengths": torch.tensor([10, 3, 5, 8, 1]),
        "loss_fn_each": lambda out, y: (out - y).square().mean(-1),
        "losses_of": lambda out: (out.mean(), out.square().mean()),
        "x": torch.randn(1, 2, 5, 3),
        "items": torch.randn(20, 3),
        "labels": torch.randn(20, 20),
        "optimizer": torch.optim.SGD(modules.parameters(), lr=0.1),
    }
    names |= {"model": model, "encoder": encoder, "head": head, "pair_head": pair_head}
    names |= {"loss_fn": loss_fn, "step": step, "checkpoint": checkpoint, "torch": torch}
    exec(SNIPPETS[0], names)
    return names


def test_every_snippet_is_marked() -> None:
    """No Python on the page is left out of the tests."""
    assert len(SNIPPETS) == TEXT.count("```python") == 8


@pytest.mark.parametrize("number", range(1, 8))
def test_snippet_runs(number: int) -> None:
    """A snippet runs twice in a row with finite gradients."""
    names = given()
    for _ in range(2):
        exec(SNIPPETS[number], names)
    grads = [p.grad for group in names["optimizer"].param_groups for p in group["params"]]
    assert all(grad.isfinite().all() for grad in grads if grad is not None)
    assert any(grad is not None for grad in grads)
