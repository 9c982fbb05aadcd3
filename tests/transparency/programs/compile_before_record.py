"""A function compiled before recording began is not compiled again, nor after it ended."""

import sys

import torch
import torch._dynamo
from torch._dynamo.utils import counters

torch.manual_seed(0)
x, w = torch.randn(5, 8), torch.randn(8, 8, requires_grad=True)


def work(x, w):
    return torch.nn.functional.gelu(x @ w).sum()


def split(x, w):
    y = x @ w
    torch._dynamo.graph_break()
    return y.relu().sum()


compiled = torch.compile(work, backend="aot_eager", fullgraph=True)
parts = torch.compile(split, backend="eager")
compiled(x, w).backward()
parts(x, w).backward()
print(counters["stats"]["unique_graphs"])


def several(name):
    for _ in range(3):
        w.grad = None
        compiled(x, w).backward()
        parts(x, w).backward()
        print(name, w.grad.sum().item().hex(), counters["stats"]["unique_graphs"])


with torch._dynamo.config.patch(error_on_recompile=True):
    several("before")
    if "onegraph" in sys.argv:
        import onegraph

        with onegraph.record():
            several("inside")
            late = torch.compile(lambda x: x.sin().sum(), backend="eager", fullgraph=True)
            late(x)
        several("after")
        late(x)
        with onegraph.record():
            late(x)
            several("again")
    else:
        several("inside")
        late = torch.compile(lambda x: x.sin().sum(), backend="eager", fullgraph=True)
        late(x)
        several("after")
        late(x)
        late(x)
        several("again")
print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
