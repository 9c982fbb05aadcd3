"""Random small training programs, each with one planted fault or with none.

A program is text, so that a failing one can be read and run by hand. The line at fault ends in the
comment ``# HERE``, which is what the report has to name.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

FAULTS = {
    "none": None,
    "carried": ("carried-state", "joined"),
    "outside": ("built-outside-loop", "built"),
    "cached": ("cached-on-module", "built"),
    "losses": ("several-losses-one-graph", "freed"),
    "twice": ("same-loss-twice", "failed"),
    "sum": ("running-sum-loss", "joined"),
    "inplace": ("inplace-op", "mutated"),
    "index": ("inplace-op", "mutated"),
    "activation": ("inplace-activation", "mutated"),
    "step": ("optimizer-step-between", "mutated"),
    "leaf": ("inplace-op", "failed"),
    "argmax": ("non-differentiable-op", "cut"),
    "detached": ("detach-cut", "cut"),
    "total": ("accumulated-graph", "kept"),
}
HERE = "# HERE"


@dataclass(frozen=True)
class Program:
    """A program's text and what it suffers from."""

    text: str
    fault: str


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program."""
    fault = draw(st.sampled_from(sorted(FAULTS)))
    width = draw(st.integers(2, 6))
    steps = 24 if fault == "total" else draw(st.integers(3, 6))
    act = draw(st.sampled_from(["tanh", "sigmoid"]))
    optimizer = draw(
        st.sampled_from(["SGD(params, lr=0.01)", "Adam(params)", "AdamW(params, foreach=False)"])
    )
    extra = draw(st.lists(st.sampled_from(sorted(_HARMLESS)), max_size=3, unique=True))
    method, in_function = draw(st.booleans()), draw(st.booleans())
    body = _step(fault, act, method, [_HARMLESS[name] for name in extra])
    before = ["h = torch.zeros(3, width)", "total = 0.0", "bag = []"]
    if fault == "outside":
        before.append(f"mixed = scale.{act}() * 2  {HERE}")
    if fault == "cached":
        before.append("net.kept = net.make()")
    loop = [f"for step in range({steps}):", *("    " + line for line in body)]
    lines = [*before, *loop, "print(float(loss))"]
    if in_function:
        lines = ["def main():", *("    " + line for line in lines), "", "main()"]
    text = _HEAD.format(width=width, act=act, optimizer=optimizer)
    return Program(text + "\n".join(lines) + "\n", fault)


_HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
width = {width}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.cell = nn.GRUCell(width, width)
        self.last = nn.Linear(width, 2)
        self.table = nn.Parameter(torch.randn(width))
        self.act = nn.ReLU(inplace=True)
        self.kept = None

    def make(self):
        return self.table.{act}() * 3  # MADE

    def forward(self, x):
        return self.norm(torch.{act}(self.first(x)))


net = Net()
scale = torch.randn(width, requires_grad=True)
params = [*net.parameters(), scale]
optimizer = torch.optim.{optimizer}

"""

_HARMLESS = {
    "metric": ["with torch.no_grad():", "    bag.append(float((net(x) > 0).float().mean()))"],
    "frozen": ["target = net(x).detach()", "y = y + 0 * target"],
    "residual": ["y = y + 1", "y += x"],
    "mask": ["y = y * (torch.rand(3, width) > 0.1)"],
    "clone": ["y = y.clone()", "y = y * 1"],
    "buffer": ["free = torch.zeros(3, width)", "free[0] = 1", "free.add_(2)", "y = y + free"],
    "split": ["one, two = y.chunk(2, dim=1)", "y = torch.cat([one, two], dim=1)"],
    "view": ["y = y.reshape(-1).view(3, width)"],
}


def _step(fault: str, act: str, method: bool, harmless: list[list[str]]) -> list[str]:
    """The lines of one training step."""
    lines = ["x = torch.randn(3, width)", "y = net(x)"]
    for extra in harmless:
        lines += extra
    lines += ["z = net.cell(y, torch.zeros(3, width))"]
    mark = f"  {HERE}"
    if fault == "carried":
        lines += [f"h = net.cell(y, h){mark}", "z = z + h"]
    elif fault == "outside":
        lines += ["z = z * mixed"]
    elif fault == "cached":
        lines += ["z = z * net.kept"]
    elif fault in ("inplace", "index", "activation"):
        lines += [f"z = torch.{act}(z)"]
        write = {
            "inplace": "z.mul_(2)" if method else "z *= 2",
            "index": "z[0] = 0.5" if method else "z[:, 0] = 0.5",
            "activation": "w = net.act(z)",
        }[fault]
        lines += [write + mark]
        lines += ["z = w * 1"] if fault == "activation" else []
    if fault == "argmax":
        lines += [f"best = net.last(z).argmax(dim=1){mark}", "loss = best.float().mean()"]
    elif fault == "detached":
        lines += [f"fixed = z.detach(){mark}", "loss = fixed.pow(2).mean()"]
    else:
        lines += ["loss = net.last(z).pow(2).mean()"]
    lines += ["optimizer.zero_grad()"]
    if fault == "leaf":
        lines += [f"scale.mul_(2){mark}" if method else f"scale[0] = 1.0{mark}"]
    if fault == "losses":
        lines += ["second = z.exp().mean()", f"loss.backward(){mark}", "second.backward()"]
    elif fault == "twice":
        lines += ["loss.backward()", f"loss.backward(){mark}"]
    elif fault == "sum":
        lines += [f"total = total + loss{mark}", "total.backward()"]
    elif fault == "step":
        lines += [
            "second = z.exp().mean()",
            "loss.backward(retain_graph=True)",
            f"optimizer.step(){mark}",
            "second.backward()",
        ]
    else:
        lines += ["loss.backward()"]
    lines += ["optimizer.step()"]
    if fault == "total":
        lines += [f"total += loss{mark}"]
    return lines
