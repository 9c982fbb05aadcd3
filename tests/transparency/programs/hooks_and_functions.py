"""Hooks of every kind, saved-tensor hooks, checkpoints and custom Functions run as alone."""

import copy
import functools
import inspect
import pickle
import threading
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Double(torch.autograd.Function):
    """Doubles."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Same(Double):
    @classmethod
    def apply(cls, *args):
        print("own apply")
        return super().apply(*args)


alias = Double.apply
part = functools.partial(Double.apply)
x = torch.randn(4, requires_grad=True)
print(Double.apply(x).sum().item().hex(), alias(x).sum().item().hex(), part(x).sum().item().hex(),
      Same.apply(x).sum().item().hex())
print(pickle.loads(pickle.dumps(Double)) is Double, copy.deepcopy(Double) is Double)
print(Double.apply.__name__, Double.apply.__self__ is Double, Double.apply.__qualname__,
      Double.apply.__module__, Double.apply == Double.apply, bool(Double.apply.__doc__))
print(inspect.signature(Double.apply), inspect.ismethod(Double.apply),
      type(torch.autograd.Function.__dict__["apply"]).__name__, "apply" in vars(Double))
print(torch.overrides.has_torch_function.__name__, callable(torch.overrides.has_torch_function_unary))
print(inspect.signature(threading.Thread._bootstrap_inner), inspect.signature(torch.jit.script))
print(inspect.signature(torch.autograd.backward), inspect.signature(torch.multiprocessing.spawn))
print(inspect.getsource(torch.autograd.Function.apply).splitlines()[1].strip())
print(torch.overrides.has_torch_function is torch.overrides.has_torch_function)
print([n for n in dir(torch.autograd.Function) if "onegraph" in n], type(Double.apply(x).grad_fn).__name__)
try:
    Double.apply(x, x)
except TypeError as error:
    print(error)
try:
    Double()
    print("made")
except Exception as error:
    print(type(error).__name__, error)


def pack(t):
    print("pack", tuple(t.shape))
    return t


def unpack(t):
    print("unpack", tuple(t.shape))
    return t


lin = nn.Linear(4, 4)
for leaf in (lin.weight,):
    leaf.register_hook(lambda g: print("leaf", g.sum().item().hex()))
    leaf.register_post_accumulate_grad_hook(lambda p: print("accumulated", p.grad.sum().item().hex()))
lin.register_forward_pre_hook(lambda m, a: print("pre", len(a)))
lin.register_forward_hook(lambda m, a, o: print("forward", o.shape))
lin.register_full_backward_hook(lambda m, gi, go: print("backward", [g is not None for g in gi]))
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    out = lin(x[None]).tanh().pow(2)
out.grad_fn.register_hook(lambda gi, go: print("node", len(gi), len(go)))
out.grad_fn.register_prehook(lambda go: print("before node", len(go)))
out.sum().backward()
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    value = (x.exp() * x).sum()
    value.backward(retain_graph=True)
    value.backward()
with torch.autograd.graph.save_on_cpu():
    x.exp().sum().backward()
print(x.grad.sum().item().hex())

runs = []


def block(t):
    runs.append(t.requires_grad)
    return torch.dropout(lin(t), 0.5, True).sin()


for reentrant in (True, False):
    runs.clear()
    y = checkpoint(block, x[None], use_reentrant=reentrant)
    y.sum().backward()
    print("checkpoint", reentrant, runs, x.grad.sum().item().hex(), torch.rand(1).item().hex())


def higher(g):
    print("second order", torch.is_grad_enabled())
    return g * 1


z = (x**3).sum()
(g,) = torch.autograd.grad(z, x, create_graph=True)
g.register_hook(higher)
g.sum().backward()
with torch.autograd.graph.allow_mutation_on_saved_tensors():
    a = torch.ones(2, requires_grad=True).clone()
    b = a * a
    a.add_(1)
    b.sum().backward()
with torch.autograd.detect_anomaly(check_nan=True), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lin(x[None]).sum().backward()
handle = torch.autograd.graph.register_multi_grad_hook([x, lin.weight], lambda gs: print("multi", len(gs)))
lin(x[None]).sum().backward()
handle.remove()
torch.autograd.set_multithreading_enabled(False)
lin(x[None]).sum().backward()
print(x.grad.sum().item().hex(), torch.is_grad_enabled(), torch.get_rng_state().sum().item())
