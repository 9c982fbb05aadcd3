"""The Jacobian of a network row by row from one retained graph, and a Gauss-Newton fit with it."""

import torch
from torch import nn

torch.manual_seed(38)
torch.set_default_dtype(torch.float64)


def jacobian(outputs, params):
    """Rows of d outputs / d params; the last row lets the graph go."""
    rows = []
    for i, value in enumerate(outputs):
        more = i + 1 < len(outputs)
        grads = torch.autograd.grad(value, params, retain_graph=more)
        rows.append(torch.cat([g.reshape(-1) for g in grads]))
    return torch.stack(rows)


net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
params = list(net.parameters())
x = torch.linspace(-1, 1, 12).unsqueeze(1)
y = x.pow(3) - 0.5 * x
for step in range(6):
    residual = (net(x) - y).squeeze(1)
    J = jacobian(residual, params)
    r = residual.detach()
    delta = torch.linalg.solve(J.T @ J + 1e-2 * torch.eye(J.size(1)), J.T @ r)
    offset = 0
    with torch.no_grad():
        for p in params:
            p -= delta[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
    print(step, r.pow(2).mean().item().hex(), J.sum().item().hex())

point = x[:3].clone().requires_grad_()
batched = torch.autograd.functional.jacobian(lambda v: net(v).squeeze(1), point)
print("inputs", tuple(batched.shape), batched.sum().item().hex())
print("parameters", sum(p.sum() for p in params).item().hex())
