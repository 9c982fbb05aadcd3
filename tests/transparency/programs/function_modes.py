"""A program's own modes and devices see and do what they see and do alone."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode


def name(func):
    return resolve_name(func) or getattr(func, "__name__", str(func))


class Printing(TorchFunctionMode):
    def __init__(self, label):
        super().__init__()
        self.label = label

    def __torch_function__(self, func, types, args=(), kwargs=None):
        print(self.label, name(func), [t.__name__ for t in types], len(args), sorted(kwargs or {}))
        return func(*args, **(kwargs or {}))


class Dispatching(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        print("dispatch", func, [t.__name__ for t in types])
        return func(*args, **(kwargs or {}))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 2))
x = torch.randn(5, 3)


def work():
    model.zero_grad()
    out = F.softmax(model(x), dim=-1)
    out = Scale.apply(out, 2.0)
    out.register_hook(lambda g: print("hook", (g * 1).shape))
    loss = F.cross_entropy(out, torch.arange(5) % 2) + torch.einsum("ij,ij->", out, out)
    loss.backward()
    print(loss.shape, loss.grad_fn is not None, loss.item().hex(), out[0, 1:].tolist())
    (g,) = torch.autograd.grad(model(x).norm(), model[0].weight)
    print(g.sum().item().hex())
    y = torch.zeros(3)
    y[1] = 4
    y += 1
    y.mul_(2)
    print(y, y.T.shape, y.device, y.data.shape, 2 - y, y == y.clone())


with Printing("outer"):
    work()
    with Printing("inner"):
        (x + 1).sum()
        torch._C._get_tracing_state()
with Dispatching():
    work()
with Printing("function"), Dispatching():
    F.gelu(x).mean()
with BaseTorchFunctionMode():
    print(F.relu(x).sum().item().hex())

first, second = Printing("first"), Printing("second")
first.__enter__()
second.__enter__()
torch.ones(2).add(1)
second.__exit__(None, None, None)
torch.ones(2).add(1)
first.__exit__(None, None, None)
torch.ones(2).add(1)


class Refusing(TorchFunctionMode):
    def __repr__(self):
        return "Refusing()"

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add:
            return NotImplemented
        if func is F.relu:
            raise ValueError("no relu here")
        return func(*args, **(kwargs or {}))


with Refusing():
    for call in (lambda: x.add(1), lambda: F.relu(x), lambda: x.mul(2)):
        try:
            print(call().sum().item().hex())
        except (TypeError, ValueError) as error:
            print(type(error).__name__, error)

with torch.device("meta"):
    layer = nn.Linear(2000, 2000)
    print(layer.weight.device, layer(torch.empty(1, 2000)).device, torch.get_default_device())
    with torch.device("cpu"):
        print(torch.zeros(1).device, torch.get_default_device())
    with Printing("on meta"):
        print(torch.arange(3).device, torch.get_default_device())
print(torch.zeros(1).device, torch.get_default_device())
torch.set_default_device("meta")
print(torch.randn(2).device, torch.tensor([1.0]).device, torch.get_default_device())
with Printing("default meta"):
    torch.set_default_device("cpu")
    print(torch.randn(2).device)
torch.set_default_device(None)
print(torch.randn(2).device, torch.get_default_device())
with torch.device("meta"):
    torch.set_default_device("cpu")
    print(torch.randn(2).device)
print(torch.randn(2).device)
torch.set_default_device(None)
print(torch.randn(2).device)
torch.set_default_dtype(torch.float64)
print(torch.randn(2).dtype, F.relu(torch.ones(2)).dtype)
with torch._C.DisableTorchFunctionSubclass():
    print(F.relu(x).sum().item().hex())
with torch._C.DisableTorchFunction():
    print(F.relu(x).sum().item().hex())
print(torch.overrides.has_torch_function((x,)), torch.overrides.has_torch_function_unary(x),
      torch.overrides.has_torch_function_variadic(x, x), torch.overrides.is_tensor_like(x),
      torch.overrides.is_tensor_method_or_property(torch.Tensor.add))
print(len(torch.overrides.get_overridable_functions()), len(torch.overrides.get_testing_overrides()))
