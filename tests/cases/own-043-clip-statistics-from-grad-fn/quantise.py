import torch
from torch import nn


class FakeQuantise(torch.autograd.Function):
    """Round to n bits; gradients pass where the value was not clipped."""

    @staticmethod
    def forward(ctx, x, limit, bits):
        step = limit / (2 ** (bits - 1) - 1)
        inside = x.abs() <= limit
        ctx.save_for_backward(inside)
        return (x.clamp(-limit, limit) / step).round() * step

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None


class QuantisedLinear(nn.Module):
    def __init__(self, n_in, n_out, limit=0.25, bits=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) * 0.2)
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.limit, self.bits = limit, bits
        self.quantised = None

    def forward(self, x):
        self.quantised = FakeQuantise.apply(self.weight, self.limit, self.bits)
        return nn.functional.linear(x, self.quantised, self.bias)

    def clipped_share(self):
        node = self.quantised.grad_fn
        (inside,) = node.saved_tensors
        return 1.0 - inside.float().mean().item()
