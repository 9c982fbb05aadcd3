"""Newton's method with autograd.functional: hessian, hvp, vjp and jvp."""

import torch
from torch.autograd import functional as AF

torch.manual_seed(39)
A = torch.randn(30, 4, dtype=torch.float64)
b = (A @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64) > 0).double()


def objective(w):
    logits = A @ w
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, b) + 0.05 * w.pow(2).sum()


w = torch.zeros(4, dtype=torch.float64)
for step in range(6):
    value, gradient = AF.vjp(objective, w)
    H = AF.hessian(objective, w)
    w = w - torch.linalg.solve(H, gradient)
    print(step, value.item().hex(), gradient.norm().item().hex())

_, Hv = AF.hvp(objective, w, torch.ones(4, dtype=torch.float64))
_, directional = AF.jvp(objective, w, torch.ones(4, dtype=torch.float64))
vectorised = AF.hessian(objective, w, vectorize=True)
print("hvp", Hv.sum().item().hex(), "jvp", directional.item().hex())
print("same", torch.allclose(H, vectorised, atol=1e-3))

# Hessian-vector products by hand, kept for conjugate gradients.
v = w.clone().requires_grad_()
(g,) = torch.autograd.grad(objective(v), v, create_graph=True)
direction = torch.zeros_like(w)
for i in range(4):
    unit = torch.zeros_like(w)
    unit[i] = 1.0
    (column,) = torch.autograd.grad(g, v, unit, retain_graph=i < 3)
    direction[i] = column.sum()
print("columns", direction.sum().item().hex())
print("parameters", w.sum().item().hex())
