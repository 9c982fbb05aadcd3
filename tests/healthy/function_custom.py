"""Custom autograd functions: straight-through rounding, in place, and with setup_context."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.levels = levels
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ScaleInplace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        ctx.mark_dirty(x)
        return x.mul_(factor)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class LinearFn(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.t() + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        gx = grad @ weight if ctx.needs_input_grad[0] else None
        gw = grad.t() @ x if ctx.needs_input_grad[1] else None
        return gx, gw, grad.sum(0)


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight1, self.bias1 = nn.Parameter(torch.randn(8, 4) / 2), nn.Parameter(torch.zeros(8))
        self.weight2, self.bias2 = nn.Parameter(torch.randn(1, 8) / 3), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        h = torch.tanh(LinearFn.apply(x, RoundSTE.apply(self.weight1, 16), self.bias1))
        return ScaleInplace.apply(LinearFn.apply(h, self.weight2, self.bias2), 2.0)


torch.manual_seed(27)
model = Quantised()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
x = torch.randn(32, 4)
y = x[:, :1] - x[:, 1:2] * x[:, 2:3]
for step in range(12):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(step, loss.item().hex())
for name, p in model.named_parameters():
    print(name, p.double().sum().item().hex(), p.grad.double().abs().sum().item().hex())
