"""Higher-order operators, export, tracing and scripting work and give what they give alone."""

import warnings

import torch
from torch import nn
from torch.fx import symbolic_trace

warnings.simplefilter("ignore", DeprecationWarning)
warnings.simplefilter("ignore", FutureWarning)
torch.manual_seed(0)
x = torch.randn(4, 8)


def value(t):
    return t.double().sum().item().hex()


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.b(x).tanh(), (x,))


gate = Gate()
print("cond", value(gate(x)), value(gate(-x)))
gate(x).sum().backward()
print(gate.a.weight.grad.sum().item().hex(), gate.b.weight.grad.sum().item())
print("cond compiled", value(torch.compile(gate, backend="eager", fullgraph=True)(x)))
print("while", torch._higher_order_ops.while_loop(
    lambda i, s: i < 3, lambda i, s: (i + 1, s + i), (torch.tensor(0), torch.tensor(1.0))))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.norm(self.lin(x)))
        return torch.nn.functional.softmax(y, dim=-1)


small = Small()
for strict in (False, True):
    program = torch.export.export(small, (x,), strict=strict)
    print("export", strict, program.graph, value(program.module()(x)))
program = torch.export.export(gate, (x,))
print(sorted(str(n.target).split(".")[0] for n in program.graph.nodes))
attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
program = torch.export.export(attention, (x[None], x[None], x[None]))
strict = torch.export.export(attention, (x[None], x[None], x[None]), strict=True)
print("strict", len(list(strict.graph.nodes)), str(strict).count("torch_function"))
print("export attention", len(list(program.graph.nodes)), value(program.module()(*[x[None]] * 3)[0]))
print("symbolic", symbolic_trace(small).graph, value(symbolic_trace(small)(x)))
print("symbolic attention", len(list(symbolic_trace(nn.Sequential(small, nn.ReLU())).graph.nodes)))

made = torch.fx.experimental.proxy_tensor.make_fx(lambda t: torch.softmax(small(t), -1))(x)
print("make_fx", made.code)


def rule(t):
    if t.sum() > 0:
        t = t.relu()
    return torch.nn.functional.dropout(t, 0.5, False)


scripted = torch.jit.script(small)
print("script", value(scripted(x)), value(torch.jit.script(rule)(x)))
print(str(scripted.graph).count("\n"))
print([type(m).__name__ for m in scripted.modules()])
for eager in (attention, nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
              nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval(),
              nn.GRUCell(8, 8)):
    compiled = torch.jit.script(eager)
    inputs = (x[None],) * 3 if eager is attention else (x,) if isinstance(eager, nn.GRUCell) else (x[None],)
    with torch.no_grad():
        a, b = eager(*inputs), compiled(*inputs)
    a, b = (a[0], b[0]) if isinstance(a, tuple) else (a, b)
    print(type(eager).__name__, value(a), value(b), str(compiled.graph).count("\n"))


class Old(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    @torch.jit.script_method
    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


print("script method", value(Old()(x[None])))
traced = torch.jit.trace(small, (x,))
print("trace", value(traced(x)), str(traced.graph))
traced = torch.jit.trace(attention, (x[None],) * 3, check_trace=True)
print("trace attention", value(traced(*[x[None]] * 3)[0]), str(traced.graph).count("\n"))
loss = scripted(x).square().sum() + traced(*[x[None]] * 3)[0].sum()
loss.backward()
print(small.lin.weight.grad.sum().item().hex())
traced = torch.jit.trace_module(small, {"forward": (x,)})
print("trace module", value(traced(x)), str(traced.inlined_graph))
print("trace function", torch.jit.trace(lambda a, b: torch.nn.functional.softplus(a) + b, (x, x)).graph)
