"""A debugger steps through a program's own lines and torch's Python code, as alone."""

import torch
import torch.nn.functional as F


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def hook(g):
    breakpoint()
    return g * 1


def work(x):
    breakpoint()
    y = x.exp()
    z = F.relu(y)
    z = Square.apply(z)
    z.register_hook(hook)
    loss = z.sum()
    loss.backward()
    return x.grad


print(work(torch.ones(2, requires_grad=True)))
print("end")
