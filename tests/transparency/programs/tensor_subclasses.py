"""Tensor subclasses' own dispatch is called as often, in the same order, as alone."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("Logged", func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


class More(Logged):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("More", func.__name__, [t.__name__ for t in types])
        return super().__torch_function__(func, types, args, kwargs)


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("Refusing", func.__name__, [t.__name__ for t in types])
        return NotImplemented


class Duck:
    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("Duck", func.__name__, [t.__name__ for t in types])
        return Duck(func(*[getattr(a, "value", a) for a in args], **(kwargs or {})))


class Method:
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print("Method", type(self).__name__, getattr(func, "__name__", "?"))
        return 42


class Static:
    @staticmethod
    def __torch_function__(func, types, args=(), kwargs=None):
        print("Static", func.__name__)
        return 43


class Plain(torch.Tensor):
    pass


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        print("dispatch", func, [t.__name__ for t in types])
        args = [a.inner if isinstance(a, Wrapped) else a for a in args]
        out = func(*args, **(kwargs or {}))
        return Wrapped(out) if isinstance(out, torch.Tensor) else out


def attempt(name, function):
    print("--", name)
    try:
        out = function()
        print(type(out).__name__, out if not isinstance(out, torch.Tensor) else tuple(out.shape))
    except Exception as error:
        # Where every handler declines, torch's message names the modes as well, so ours too.
        print(type(error).__name__, str(error).splitlines()[0].partition(" nor in mode")[0])


torch.manual_seed(0)
t = torch.randn(3, 4)
logged, more, refusing, plain = (t.clone().as_subclass(c) for c in (Logged, More, Refusing, Plain))
duck = Duck(t)
attempt("getter", lambda: logged.shape)
attempt("method", lambda: logged.add(1))
attempt("operator", lambda: 1 - logged)
attempt("two kinds", lambda: logged + more)
attempt("two kinds", lambda: torch.cat([t, logged, more]))
attempt("python", lambda: F.softmax(logged, dim=-1))
attempt("python two", lambda: F.linear(logged, more))
attempt("python composite", lambda: F.cross_entropy(logged, torch.tensor([0, 1, 2])))
attempt("module", lambda: nn.Linear(4, 2)(more))
attempt("index", lambda: logged[0])
attempt("setindex", lambda: logged.__setitem__(0, 1.0))
attempt("detach", lambda: more.detach().requires_grad_().sum().grad_fn is not None)
attempt("repr", lambda: print(repr(logged)))
attempt("copy", lambda: copy.deepcopy(logged))
attempt("refusing", lambda: refusing.add(1))
attempt("refusing", lambda: torch.add(refusing, logged))
attempt("refusing", lambda: torch.add(logged, refusing))
attempt("refusing python", lambda: F.softmax(refusing, dim=-1))
attempt("refusing python", lambda: torch.nn.functional.linear(t, refusing))
attempt("refusing getter", lambda: refusing.T)
attempt("refusing operator", lambda: refusing + 1)
attempt("duck", lambda: torch.add(duck, 1).value.sum())
attempt("duck", lambda: F.relu(duck).value.sum())
attempt("duck and tensor", lambda: torch.add(logged, duck).value.sum())
attempt("method", lambda: torch.add(Method(), 1))
attempt("method", lambda: F.relu(Method()))
attempt("static", lambda: torch.add(Static(), 1))
attempt("static", lambda: F.relu(Static()))
attempt("plain", lambda: F.relu(plain + 1))
attempt("wrapped", lambda: F.relu(Wrapped(t) + 1) @ t.T)
attempt("buffer", lambda: isinstance(nn.Buffer(t) * 2, nn.Buffer))
attempt("parameter", lambda: nn.Parameter(t) * 2)
attempt("parameter", lambda: F.relu(nn.Parameter(t)))
parameter = nn.Parameter(logged)
attempt("subclass parameter", lambda: F.linear(t, parameter))
attempt("backward", lambda: (logged.clone().detach().requires_grad_() * 2).sum().backward())
attempt("size", lambda: (logged.size(), logged.dim(), logged.numel(), len(logged), logged.tolist()[0]))
attempt("wrong", lambda: logged.reshape(5, 5))
attempt("wrong", lambda: F.linear(logged, torch.ones(2, 2)))
