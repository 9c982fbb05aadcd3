"""Where gradients were switched off: the line that did it, or the one that computed meanwhile."""

from __future__ import annotations

import pytest

from tests import forked

PROGRAM = """
import torch
model = torch.nn.Linear(4, 1)

{decorator}
def predict(x):
    {scope}
    return model(x * 2)

predict(torch.randn(5, 4)).sum().backward()
"""

FORMS = {
    "a decorator": ("@torch.no_grad()", "pass", 5, "gradients are switched off here"),
    "a block's call": ("", "torch.set_grad_enabled(False)", 7, "gradients are switched off here"),
    "inference mode": ("@torch.inference_mode()", "pass", 8, "gradients were off here"),
}


@pytest.mark.usefixtures("torch_loaded")
@pytest.mark.parametrize("form", FORMS)
def test_the_line_that_switched_gradients_off(tmp_path, form):
    """A decorator, a call and a mode are each told by their own line as far as it was seen."""
    decorator, scope, line, label = FORMS[form]
    (tmp_path / "train.py").write_text(PROGRAM.format(decorator=decorator, scope=scope))
    run = forked.run(tmp_path, ["train.py"])
    (finding,) = run.findings
    assert (finding["cause"], finding["sites"]["cut"][0]["line"]) == ("no-grad-scope", line)
    assert label in run.err
