"""A tensor subclass that carries units through __torch_function__, and a module that uses it."""

from collections import Counter

import torch
from torch import nn

calls = Counter()


class Tagged(torch.Tensor):
    @staticmethod
    def __new__(cls, data, tag="none"):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, tag="none"):
        self.tag = tag

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls[getattr(func, "__name__", str(func))] += 1
        result = super().__torch_function__(func, types, args, kwargs or {})
        tags = [a.tag for a in args if isinstance(a, Tagged) and hasattr(a, "tag")]
        if isinstance(result, Tagged) and tags:
            result.tag = tags[0]
        return result


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 6)
        self.out = nn.Linear(6, 1)
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.out(torch.tanh(self.fc(x))) * self.gain


torch.manual_seed(55)
x = Tagged(torch.randn(20, 3), tag="metres")
y = torch.randn(20, 1)
model = Scale()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    out = model(x)
    loss = nn.functional.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    if step % 3 == 1:
        print(step, type(loss).__name__, out.tag, loss.item().hex())
print({name: calls[name] for name in ("linear", "tanh", "mse_loss", "backward")})
grads = [p.grad.as_subclass(torch.Tensor) for p in model.parameters()]
print("gradients", sum(g.double().abs().sum() for g in grads).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
