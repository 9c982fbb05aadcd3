"""Model-agnostic meta-learning on sine regression, with second-order inner gradients."""

import torch
import torch.nn.functional as F


def forward(x, params):
    w1, b1, w2, b2 = params
    return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)


def adapt(params, x, y, lr=0.05, steps=2):
    fast = params
    for _ in range(steps):
        loss = F.mse_loss(forward(x, fast), y)
        grads = torch.autograd.grad(loss, fast, create_graph=True)
        fast = [p - lr * g for p, g in zip(fast, grads, strict=True)]
    return fast


def task():
    amplitude, phase = 0.5 + torch.rand(1), 3.14 * torch.rand(1)
    x = 6 * torch.rand(20, 1) - 3
    y = amplitude * torch.sin(x + phase)
    return (x[:10], y[:10]), (x[10:], y[10:])


torch.manual_seed(16)
meta = [
    (0.5 * torch.randn(24, 1)).requires_grad_(),
    torch.zeros(24, requires_grad=True),
    (0.2 * torch.randn(1, 24)).requires_grad_(),
    torch.zeros(1, requires_grad=True),
]
optimizer = torch.optim.Adam(meta, lr=5e-3)
for step in range(20):
    optimizer.zero_grad()
    meta_loss = 0.0
    for _ in range(4):
        support, query = task()
        fast = adapt(meta, *support)
        loss = F.mse_loss(forward(query[0], fast), query[1]) / 4
        loss.backward()
        meta_loss += loss.item()
    optimizer.step()
    if step % 5 == 0:
        print(step, meta_loss.hex())

support, query = task()
fast = [p.detach().requires_grad_() for p in adapt(meta, *support, steps=4)]
with torch.no_grad():
    print("adapted", F.mse_loss(forward(query[0], fast), query[1]).item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in meta).item().hex())
print("parameters", sum(p.double().sum() for p in meta).item().hex())
