"""Exceptions have the traceback they have alone, caught or not, in hooks, threads and tasks too.

The argument names the failure that ends the program.
"""

import asyncio
import logging
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
x = torch.randn(2, 3, requires_grad=True)
bad = nn.Linear(4, 2)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        if where == "forward":
            return F.linear(x, torch.ones(2, 5))
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if ctx.where == "backward":
            return F.linear(g, torch.ones(2, 5)), None
        return g, None


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.exp:
            raise KeyError("no exp")
        return super().__torch_function__(func, types, args, kwargs)


class Frozen(Exception):
    def __setattr__(self, name, value):
        raise AttributeError("frozen")


def raising(g):
    raise Frozen("hook")


def in_hook():
    y = x * 2
    y.register_hook(lambda g: g.view(7))
    y.sum().backward()


def in_own_hook():
    y = x * 2
    y.register_hook(raising)
    torch.autograd.grad(y.sum(), x)


def in_module_hook():
    module = nn.Linear(3, 3)
    module.register_full_backward_hook(lambda m, gi, go: gi[0].view(7))
    module(x * 1).sum().backward()


runs = []


def recomputed(t):
    runs.append(1)
    return F.linear(t, torch.ones(2, 3 if len(runs) % 2 else 4)).sin()


def in_recomputation(reentrant):
    checkpoint(recomputed, x * 1, use_reentrant=reentrant).sum().backward()


def in_compiled():
    torch.compile(lambda t: F.linear(t, torch.ones(2, 5)), backend="eager")(x)


def in_compiled_call():
    def graph_broken(t):
        torch._dynamo.graph_break()
        return [1, 2][int(t.shape[0]) + 5]

    torch.compile(graph_broken, backend="eager")(x)


def in_packing():
    def pack(t):
        raise ValueError("pack")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x.exp()


def in_context():
    try:
        F.linear(x, torch.ones(2, 5))
    except RuntimeError:
        F.softmax(x, dim=9)


def in_cause():
    try:
        torch.cat([x, torch.ones(3)])
    except RuntimeError as error:
        raise ValueError("outer") from error


def in_group():
    errors = []
    for function in (in_hook, in_cause):
        try:
            function()
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("several", errors)


def in_pool():
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(F.linear, x, torch.ones(2, 5))
    return future.result()


def in_task():
    async def work():
        await asyncio.sleep(0)
        return F.linear(x, torch.ones(2, 5))

    async def main():
        await asyncio.gather(work(), asyncio.to_thread(in_hook))

    asyncio.run(main())


def in_generator():
    def generate():
        yield x
        yield F.linear(x, torch.ones(2, 5))

    return list(generate())


def deep(n):
    return deep(n - 1) if n else F.linear(x, torch.ones(2, 5))


FAILURES = {
    "c-function": lambda: torch.mm(x, x),
    "method": lambda: x.view(7),
    "operator": lambda: x + torch.ones(5),
    "python-operator": lambda: 2 // x.view(7),
    "index": lambda: x[9],
    "set-index": lambda: x.data.__setitem__((9, 9), 1),
    "getter": lambda: x.nothing,
    "setter": lambda: setattr(x, "grad", torch.ones(9)),
    "linear": lambda: F.linear(x, torch.ones(2, 5)),
    "softmax": lambda: F.softmax(x, dim=9),
    "cross-entropy": lambda: F.cross_entropy(x, torch.tensor([7, 8])),
    "einsum": lambda: torch.einsum("ij,jk->ik", x, x),
    "module": lambda: bad(x),
    "attention": lambda: nn.MultiheadAttention(4, 2)(x, x, x),
    "lstm": lambda: nn.LSTM(7, 2)(x),
    "init": lambda: nn.init.xavier_uniform_(torch.ones(2)),
    "function-forward": lambda: Broken.apply(x, "forward"),
    "function-backward": lambda: Broken.apply(x, "backward").sum().backward(),
    "function-signature": lambda: Broken.apply(),
    "subclass": lambda: x.detach().as_subclass(Refusing).exp(),
    "hook": in_hook,
    "own-hook": in_own_hook,
    "module-hook": in_module_hook,
    "recomputed-reentrant": lambda: in_recomputation(True),
    "recomputed": lambda: in_recomputation(False),
    "compiled": in_compiled,
    "compiled-call": in_compiled_call,
    "packing": in_packing,
    "context": in_context,
    "cause": in_cause,
    "group": in_group,
    "pool": in_pool,
    "task": in_task,
    "generator": in_generator,
    "gradient": lambda: torch.autograd.grad(x.sum(), torch.ones(2, requires_grad=True)),
    "not-scalar": lambda: (x * 2).backward(),
    "no-graph": lambda: torch.ones(1).backward(),
    "vmap": lambda: torch.func.vmap(lambda t: F.linear(t, torch.ones(2, 5)))(x),
    "func-grad": lambda: torch.func.grad(lambda t: F.linear(t, torch.ones(2, 5)))(x),
    "deep": lambda: deep(50),
    "type-error": lambda: F.relu("text"),
    "keyword": lambda: torch.sum(x, nothing=1),
}

for name, failure in FAILURES.items():
    print("==", name)
    runs.clear()
    try:
        failure()
    except Exception:
        print(traceback.format_exc())
threading.Thread(target=FAILURES["linear"], name="worker").start()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
hooked = []
threading.excepthook = lambda args: hooked.append(len(traceback.extract_tb(args.exc_traceback)))
thread = threading.Thread(target=in_hook)
thread.start()
thread.join()
print(hooked)
logging.basicConfig(format="%(levelname)s %(message)s")
try:
    F.linear(x, torch.ones(2, 5))
except RuntimeError:
    logging.exception("logged")


class Closing:
    def __del__(self):
        F.linear(x, torch.ones(2, 5))


Closing()
sys.stdout.flush()
runs.clear()
FAILURES[sys.argv[1] if len(sys.argv) > 1 else "linear"]()
