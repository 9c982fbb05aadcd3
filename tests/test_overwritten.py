"""Several tensors written to at once: the report names the one that a backward needed."""

from __future__ import annotations

import pytest

from tests import forked

HEAD = """
import torch
a = torch.randn(3, 3, requires_grad=True)
b = torch.randn(3, 3, requires_grad=True)
"""

# What follows; the tensor that the engine meets first, and the line that wrote to it.
PROGRAMS = {
    "results that look alike": (
        """x, y = a.exp(), b.exp()
z = x.sum() + y.sum()
with torch.no_grad():
    x.mul_(2)
    y.mul_(3)
z.backward()
""",
        ("y", 9),
    ),
    "one of two inputs": (
        """p, q = a.sin(), a.cos()
z = (p * q).sum()
with torch.no_grad():
    p.add_(1)
z.backward()
""",
        ("p", 8),
    ),
    "an input of a product and another tensor": (
        """p, q = a.sin(), a.cos()
z = (p @ q).sum() + b.sum()
with torch.no_grad():
    b.add_(1)
    p.add_(1)
z.backward()
""",
        ("p", 9),
    ),
    "a loop's variable": (
        """p, q = a.sin(), a.cos()
z = (p * q).sum()
with torch.no_grad():
    for t in (q,):
        t.mul_(2)
z.backward()
""",
        ("q", 9),
    ),
    "through detached names": (
        """h, k = a.sigmoid(), b.sigmoid()
z = (h * b).sum() + (k * a).sum()
h.detach().zero_()
k.detach().fill_(1)
z.backward()
""",
        ("k", 8),
    ),
}


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tensor_that_was_needed_is_named(tmp_path, program):
    """Of several written tensors the saved one is named, with the line that wrote to it."""
    body, told = PROGRAMS[program]
    (tmp_path / "train.py").write_text(HEAD + body)
    (finding,) = forked.run(tmp_path, ["train.py"]).findings
    assert finding["symptom"] == "inplace-modified"
    assert finding["certainty"] == "proved"
    assert (finding["names"][0], finding["sites"]["mutated"][0]["line"]) == told
