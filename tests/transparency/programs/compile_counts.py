"""torch.compile breaks graphs and recompiles as often as it does alone."""

import warnings

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

warnings.filterwarnings("ignore", message=".*non-leaf.*")
torch.manual_seed(0)


def tell(name):
    frames = dict(counters["frames"])
    unique = counters["stats"].get("unique_graphs", 0)
    breaks = sorted((k.splitlines()[0], n) for k, n in counters["graph_break"].items())
    print(name, frames, "graphs", unique, "calls", counters["stats"].get("calls_captured", 0),
          "breaks", breaks)
    counters.clear()


def fresh():
    torch._dynamo.reset()
    counters.clear()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def plain(x, w):
    return torch.nn.functional.gelu(x @ w).sum()


def breaking(x, w):
    y = x @ w
    print("between", tuple(y.shape))
    return y.tanh().sum()


@torch._dynamo.disable
def aside(y):
    return y.exp() * 2


def disabling(x, w):
    y = x @ w
    y = aside(y)
    return y.sin().sum()


def custom(x, w):
    return Square.apply(x @ w).sum()


def seen_by_overrides(x, w):
    if torch.overrides.has_torch_function((x,)):
        return x.sum() * 0
    return (x @ w).mean()


x = torch.randn(5, 8)
w = torch.randn(8, 8, requires_grad=True)
for backend in ("eager", "aot_eager"):
    for fullgraph in (False, True):
        for function in (plain, custom, seen_by_overrides):
            fresh()
            compiled = torch.compile(function, backend=backend, fullgraph=fullgraph)
            for rows in (5, 5, 3, 4, 2, 7):
                out = compiled(x[:1].expand(rows, 8).contiguous(), w)
                (g,) = torch.autograd.grad(out, w)
                print(rows, out.item().hex(), g.sum().item().hex())
            tell(f"{backend} {fullgraph} {function.__name__}")
    for function in (breaking, disabling):
        fresh()
        compiled = torch.compile(function, backend=backend)
        for rows in (5, 5, 3, 4):
            out = compiled(x[:1].expand(rows, 8).contiguous(), w)
            out.backward()
            print(rows, out.item().hex(), w.grad.sum().item().hex())
            w.grad = None
        tell(f"{backend} {function.__name__}")

fresh()
try:
    torch.compile(breaking, backend="eager", fullgraph=True)(x, w)
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
tell("refused")

fresh()
with torch._dynamo.config.patch(error_on_recompile=True):
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True, dynamic=False)
    for _ in range(4):
        compiled(x, w).backward()
    with torch.no_grad():
        try:
            compiled(x, w)
            print("no recompile")
        except Exception as error:
            print(type(error).__name__)
tell("error_on_recompile")

fresh()
attention = nn.MultiheadAttention(8, 2, batch_first=True)
compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
seq = torch.randn(2, 5, 8)
mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
for _ in range(3):
    y, _weights = compiled(seq, seq, seq, key_padding_mask=mask)
    y.square().sum().backward()
    print(y.sum().item().hex(), attention.in_proj_weight.grad.sum().item().hex())
attention.eval()
with torch.no_grad():
    y, _weights = compiled(seq, seq, seq, key_padding_mask=mask)
    print(y.sum().item().hex())
tell("attention")

fresh()
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
model.compile(backend="aot_eager")
step = torch.compile(optimizer.step, backend="eager")
for _ in range(4):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    step()
    print(loss.item().hex())
tell("module and optimiser")

fresh()
data = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.arange(24.0).reshape(6, 4)), batch_size=2
)


@torch.compile(backend="eager")
def epoch(w):
    total = 0
    for (batch,) in data:
        total = total + (batch * w).sum()
    return total


v = torch.ones(4, requires_grad=True)
for _ in range(2):
    out = epoch(v)
    out.backward()
    print(out.item(), v.grad.sum().item())
tell("data loader inside")

fresh()


@torch.compile(backend="aot_eager")
def outer(x, w):
    return inner(x, w) + inner(x, w)


@torch.compile(backend="aot_eager")
def inner(x, w):
    return (x @ w).relu().sum()


for _ in range(3):
    out = outer(x, w)
    out.backward()
    print(out.item().hex())
print(inner(x, w).item().hex())
tell("nested")

fresh()
graphs = []


def backend(gm, example_inputs):
    graphs.append(len(list(gm.graph.nodes)))
    return gm.forward


compiled = torch.compile(lambda x: (x + 1).cos().sum(), backend=backend)
compiled(x)
with torch.device("cpu"):
    compiled(x)
torch.set_default_device("cpu")
compiled(x)
torch.set_default_device(None)
compiled(x)
print("own backend", graphs)
tell("own backend")
