"""Faults that raise nothing: what is told when a program ends, and what looks alike and is fine."""

from __future__ import annotations

import pytest

from tests import forked

pytestmark = pytest.mark.usefixtures("torch_loaded")

HEAD = """
import copy, torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def batch():
    return torch.randn(5, 4)
"""

# What follows the common head, and what is told: (symptom, cause, name).
FAULTS = {
    "a running total": (
        """
total = torch.zeros(())
for step in range(40):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    total += loss
""",
        ("graph-growth", "accumulated-graph", "total"),
    ),
    "a list of losses": (
        """
history = []
for step in range(40):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    history.append(loss)
""",
        ("graph-growth", "accumulated-graph", "history"),
    ),
    "an encoder cut off": (
        """
encoder = nn.Linear(4, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *model.parameters()], lr=0.1)
for step in range(8):
    loss = model(encoder(batch()).detach()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
        ("lost-gradient", "detach-cut", "encoder"),
    ),
    "a head that is never called": (
        """
spare = nn.Linear(4, 3)
optimizer = torch.optim.SGD([*model.parameters(), *spare.parameters()], lr=0.1)
for step in range(30):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
        ("lost-gradient", "unused-module", "spare"),
    ),
    "a model made again after its optimizer": (
        """
model = nn.Linear(4, 3)
for step in range(30):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
        ("lost-gradient", "unused-module", "optimizer"),
    ),
    "totals by name on an object": (
        """
import collections
class Meter:
    def __init__(self):
        self._sums = collections.defaultdict(float)
    def update(self, **values):
        for name, value in values.items():
            self._sums[name] += value
meter = Meter()
for step in range(40):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    meter.update(loss=loss)
""",
        ("graph-growth", "accumulated-graph", "self._sums[name]"),
    ),
    "a mean kept once an epoch": (
        """
history = []
for epoch in range(12):
    outputs = []
    for step in range(5):
        y = model(batch())
        loss = y.pow(2).mean()
        outputs.append(y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    history.append(torch.stack(outputs).mean())
""",
        ("graph-growth", "accumulated-graph", "history"),
    ),
    "a retained graph that nothing uses": (
        """
for step in range(8):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(retain_graph=True); optimizer.step()
""",
        ("needless-retain", "needless-retain"),
    ),
}

HEALTHY = {
    "a replay buffer of detached tensors": """
buffer = []
for step in range(40):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    buffer.append(model(batch()).detach())
""",
    "a bounded buffer filled a few at a time": """
buffer = []
for step in range(24):
    for move in range(4):
        buffer = (buffer + [model(batch())])[-40:]
    for update in range(3):
        loss = model(batch()).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "an average of the weights": """
average = copy.deepcopy(model).requires_grad_(False)
for step in range(40):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    with torch.no_grad():
        for kept, now in zip(average.parameters(), model.parameters()):
            kept.lerp_(now, 0.1)
""",
    "truncated back-propagation": """
cell = nn.GRUCell(4, 4)
optimizer = torch.optim.SGD([*cell.parameters(), *model.parameters()], lr=0.1)
h = torch.zeros(5, 4)
for window in range(40):
    h = h.detach()
    loss = 0.0
    for step in range(4):
        h = cell(batch(), h)
        loss = loss + model(h).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "gradients gathered over micro-batches": """
for step in range(12):
    optimizer.zero_grad()
    for part in range(4):
        (model(batch()).pow(2).mean() / 4).backward()
    optimizer.step()
""",
    "metrics as numbers": """
losses, total = [], 0.0
for step in range(40):
    loss = model(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item()); total += loss.item()
""",
    "a data set that grows": """
data = [batch()]
for step in range(40):
    loss = model(torch.cat(data)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    data.append(batch())
""",
    "a gradient penalty": """
for step in range(12):
    x = batch().requires_grad_()
    y = model(x).pow(2).sum()
    slope, = torch.autograd.grad(y, x, create_graph=True)
    optimizer.zero_grad(); (y + slope.pow(2).sum()).backward(); optimizer.step()
""",
    "a frozen layer": """
frozen = nn.Linear(4, 4).requires_grad_(False)
optimizer = torch.optim.SGD([*frozen.parameters(), *model.parameters()], lr=0.1)
for step in range(12):
    loss = model(frozen(batch())).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "tied weights": """
encoder = nn.Linear(4, 3); decoder = nn.Linear(3, 4)
decoder.weight = nn.Parameter(encoder.weight.t()); encoder.weight = nn.Parameter(torch.ones(3, 4))
tied = nn.Linear(4, 3, bias=False); tied.weight = encoder.weight
optimizer = torch.optim.SGD({*encoder.parameters(), *tied.parameters()}, lr=0.1)
for step in range(12):
    loss = (encoder(batch()) + tied(batch())).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "experts that take turns": """
experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(3))
optimizer = torch.optim.SGD(experts.parameters(), lr=0.1)
for step in range(12):
    loss = experts[step % 3](batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "a part that is used in every fifth step": """
rare = nn.Linear(4, 3)
optimizer = torch.optim.SGD([*model.parameters(), *rare.parameters()], lr=0.1)
for step in range(15):
    loss = model(batch()).pow(2).mean()
    if step % 5 == 4:
        loss = loss + rare(batch()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "a head that is only watched": """
probe = nn.Linear(4, 3)
for step in range(12):
    x = batch()
    loss = model(x).pow(2).mean()
    with torch.no_grad():
        seen = probe(x).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
}


def findings(tmp_path, body, *options):
    """What ``onegraph run`` tells of the program."""
    (tmp_path / "train.py").write_text(HEAD + body)
    run = forked.run(tmp_path, ["train.py"], options)
    assert run.err.count("Traceback") == 0, run.err
    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_silent_fault_is_told(tmp_path, fault):
    """A fault that raises nothing is one finding with its cause and the user's name."""
    body, told = FAULTS[fault]
    run = findings(tmp_path, body)
    assert run.status == 0
    found = [(f["symptom"], f["cause"], *f["names"][:1]) for f in run.findings]
    assert found == [told]


@pytest.mark.parametrize("program", HEALTHY)
def test_what_looks_alike_is_not_told(tmp_path, program):
    """A program that does it right gives no finding."""
    assert findings(tmp_path, HEALTHY[program]).findings == []


@pytest.mark.parametrize(("level", "status"), [("error", 0), ("warning", 3), ("note", 3)], ids=str)
def test_fail_on_a_warning(tmp_path, level, status):
    """--fail-on ends a program with 3 for a finding of that level or a graver one."""
    body, _ = FAULTS["a running total"]
    assert findings(tmp_path, body, "--fail-on", level).status == status


def test_fail_on_says_nothing_of_a_healthy_program(tmp_path):
    """--fail-on leaves a program without findings its own status."""
    body = HEALTHY["metrics as numbers"] + "raise SystemExit(5)\n"
    assert findings(tmp_path, body, "--fail-on", "note").status == 5
