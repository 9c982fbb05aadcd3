"""What the source says about an expression: names stored and read, targets, slices."""

from __future__ import annotations

import pytest

from onegraph.diagnosis.syntax import Syntax
from onegraph.trace import Frame, Source


def statement(text, expression=None, line=1):
    """The statement of a one-file program, at an expression of it."""
    syntax = Syntax({"f.py": Source(text)})
    column = end = None
    if expression is not None:
        row = text.splitlines()[line - 1]
        column = row.rindex(expression)
        end = column + len(expression)
    return syntax.statement(Frame("f.py", line, "f", column, line, end))


@pytest.mark.parametrize(
    ("text", "stores"),
    [
        ("h = cell(x, h)", ("h",)),
        ("out, self.hidden = self.lstm(x, self.hidden)", ("out", "self.hidden")),
        ("cache[key] = f(x)", ("cache[key]", "cache")),
        ("total += loss", ("total",)),
        ("state.zero_()", ("state",)),
        ("self.memory.append(h)", ("self.memory",)),
        ("self.s[:] = 0", ("self.s[:]", "self.s")),
        ("setattr(self, 'h', f(x))", ("self.h",)),
        ("(y := f(x))", ("y",)),
        ("return f(x)", ()),
    ],
)
def test_stores(text, stores):
    """What a statement stores into, as the user spells it."""
    assert statement(text).stores == stores


@pytest.mark.parametrize(
    ("text", "expression", "reads"),
    [
        ("h = cell(x, h)", "cell(x, h)", ("x", "h")),
        ("y = self.rnn(x, self.h)", "self.rnn(x, self.h)", ("self", "x", "self.h")),
        ("y = w[i] @ v.t()", "w[i] @ v.t()", ("w[i]", "w", "i", "v", "v.t()")),
        ("y = f(x.shape, z.detach(), len(q))", "f(x.shape, z.detach(), len(q))", ()),
    ],
)
def test_reads(text, expression, reads):
    """What an expression reads; what only asks about a tensor does not count."""
    assert statement(text, expression).reads == reads


def test_imported_names_are_no_tensors():
    """A module's name is not read as a tensor."""
    assert statement("import torch as t\ny = t.tanh(x)", "t.tanh(x)", line=2).reads == ("x",)


def test_target_of_a_loss():
    """The second argument of a loss function is its target."""
    assert statement("l = criterion(net(x), old)", "criterion(net(x), old)").target_reads == (
        "old",
    )
    assert statement("l = mse_loss(net(x), target=old)").target_reads == ("old",)
    assert statement("l = cross_entropy(out, f(y, out.size(1)))").target_reads == ("y",)
    assert statement("l = kl_divergence(q, self.prior)").target_reads == ()


def test_cuts():
    """A basic index or a chunk takes a part; an index by a list copies."""
    assert statement("y = x[i]", "x[i]").cuts
    assert statement("y = x[a:b, 0]", "x[a:b, 0]").cuts
    assert not statement("y = x[[1, 2]]", "x[[1, 2]]").cuts
    assert statement("a, b = x.chunk(2)", "x.chunk(2)").cuts


def test_wide_characters():
    """Columns count code points although the parser counts bytes."""
    assert statement("状态 = 单元(输入, 状态)", "单元(输入, 状态)").reads == ("输入", "状态")


@pytest.mark.parametrize("text", ["def f(:\n", "\x00", "", "x = (\n"])
def test_odd_text(text):
    """Text that is no Python gives no statement and no error."""
    assert statement(text) is None


def test_stored_in_loop():
    """Whether a loop around a line stores into a name, None when nothing does."""
    text = "a = f()\nfor i in x:\n    b = g(a)\n    b.backward()\n"
    syntax = Syntax({"f.py": Source(text)})
    frame = Frame("f.py", 4, "<module>")
    assert syntax.stored_in_loop(frame, "a") is False
    assert syntax.stored_in_loop(frame, "b") is True
    assert syntax.stored_in_loop(frame, "c") is None
