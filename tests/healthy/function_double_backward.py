"""A custom autograd function that is differentiable twice, used with a smoothness penalty."""

import torch
from torch import nn


class SoftSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 12), nn.Linear(12, 1)

    def forward(self, x):
        return self.b(SoftSwish.apply(self.a(x)))


torch.manual_seed(28)
point = torch.randn(5, dtype=torch.float64, requires_grad=True)
print("gradcheck", torch.autograd.gradcheck(SoftSwish.apply, (point,)))
print("gradgradcheck", torch.autograd.gradgradcheck(SoftSwish.apply, (point,)))

net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(12):
    x = torch.randn(16, 2, requires_grad=True)
    y = (x.detach() ** 2).sum(1, keepdim=True)
    out = net(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = (out - y).pow(2).mean() + 0.01 * slope.pow(2).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(step, loss.item().hex(), slope.detach().double().sum().item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())
