"""Copies and pickles of models, functions and tensors are what they are alone."""

import copy
import functools
import io
import pickle

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = parametrizations.orthogonal(nn.Linear(4, 4))
        self.act = functools.partial(F.softmax, dim=-1)
        self.shift = Shift.apply
        self.table = nn.ParameterDict({"a": torch.ones(2)})

    def forward(self, x):
        return self.shift(self.act(self.lin(x)))


def value(tensor):
    return tensor.double().sum().item().hex()


torch.manual_seed(0)
model = Model()
x = torch.randn(2, 4)
twin = copy.deepcopy(model)
print(value(model(x)), value(twin(x)), twin.shift is model.shift, twin.act.func is F.softmax)
twin(x).square().sum().backward()
print(all(p.grad is None for p in model.parameters()), sum(p.grad is not None for p in twin.parameters()))
again = copy.deepcopy(twin)
print([p.grad is not None and value(p.grad) for p in again.parameters()])
for thing in (F.softmax, F.multi_head_attention_forward, Shift, nn.Linear, torch.exp,
              torch.Tensor.add, torch.overrides.handle_torch_function, torch.autograd.backward):
    print(getattr(thing, "__name__", thing), pickle.loads(pickle.dumps(thing)) is thing, copy.copy(thing) is thing)
print(len(pickle.dumps(Shift.apply)), pickle.loads(pickle.dumps(Shift.apply))(x).sum().item().hex())
buffer = io.BytesIO()
torch.save({"state": model.state_dict(), "x": x, "act": model.act}, buffer)
print(len(buffer.getvalue()) // 100)
buffer.seek(0)
loaded = torch.load(buffer, weights_only=False)
model.load_state_dict(loaded["state"])
print(value(model(x)), value(loaded["x"]))
leaf = torch.ones(2, requires_grad=True)
try:
    copy.deepcopy(leaf * 2)
except RuntimeError as error:
    print(error)
print(copy.copy(leaf).requires_grad, copy.deepcopy(leaf).requires_grad, pickle.loads(pickle.dumps(leaf)))
print(torch.multiprocessing.reductions.reduce_tensor(torch.ones(2))[0].__name__)
