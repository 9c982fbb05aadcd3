"""Tensors live as long as alone: nothing of ours refers to them, not even after a failure."""

import gc
import sys
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

gc.collect()
gc.disable()
torch.manual_seed(0)


def watch(name, tensor):
    weakref.finalize(tensor, print, "died", name)
    return tensor


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.token = watch("token", nn.Identity())
        return x * 2

    @staticmethod
    def backward(ctx, g):
        print("in backward", sys.getrefcount(g))
        return g * 2


def step(lin, x):
    hidden = watch("hidden", lin(x))
    print("refs", sys.getrefcount(hidden), sys.getrefcount(x), sys.getrefcount(lin.weight))
    y = watch("activation", F.relu(hidden))
    y = watch("doubled", Twice.apply(y))
    loss = watch("loss", F.mse_loss(y, torch.zeros_like(y)))
    print("made")
    loss.backward()
    print("back", sys.getrefcount(loss), sys.getrefcount(lin.weight.grad))
    del hidden
    print("hidden deleted")
    return loss.detach()


lin = nn.Linear(3, 3)
optimizer = torch.optim.AdamW(lin.parameters())
for turn in range(3):
    print("turn", turn)
    out = step(lin, watch("input", torch.randn(2, 3)))
    optimizer.step()
    optimizer.zero_grad()
    print(out.shape, sys.getrefcount(out))

big = watch("kept by user", torch.randn(4, 4))
for function in (lambda: F.linear(watch("temporary", torch.ones(2, 9)), big),
                 lambda: torch.mm(watch("temporary", torch.ones(2, 9)), big),
                 lambda: watch("temporary", torch.ones(2, 9)).view(7),
                 lambda: Twice.apply(watch("temporary", torch.ones(2, 9)), 1),
                 lambda: watch("root", torch.ones(2, requires_grad=True) * 1).backward()):
    kept = None
    try:
        function()
    except Exception as error:
        kept = error
        print("kept", type(error).__name__, sys.getrefcount(error))
    kept = None
    print("dropped")

x = torch.randn(2, 3, requires_grad=True)
y = checkpoint(lambda t: watch("recomputed", lin(t).sin()), x, use_reentrant=False)
y.sum().backward()
print("checkpoint done")
saved = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: watch("packed", t.clone()), lambda t: t):
    z = x.exp() * x
z.sum().backward(retain_graph=True)
del z
print("graph deleted")
node = x.sin().grad_fn
print("node", sys.getrefcount(node), node is x.sin().grad_fn, node.next_functions[0][1])
del node
a = x * 2
print(sys.getrefcount(a.grad_fn), a.grad_fn is a.grad_fn)
cycle = [x * 3]
cycle.append(cycle)
watch("in cycle", cycle[0])
del cycle
print("collected", gc.collect() > 0)
h = x
for _ in range(200):
    h = torch.tanh(h + x)
h.sum().backward()
print("collected", gc.collect(), len(gc.garbage))
objects = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
print("tensors", len(objects), sorted(tuple(o.shape) for o in objects))
del objects
with torch.no_grad():
    for _ in range(5):
        lin.weight.mul_(1.0)
print("end", sys.getrefcount(lin.weight), sys.getrefcount(x), sys.getrefcount(F.relu))
