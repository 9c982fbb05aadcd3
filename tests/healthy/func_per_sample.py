"""Functional training with torch.func: grad, vmap, functional_call, jacrev and a model ensemble."""

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, jacrev, stack_module_state, vmap

torch.manual_seed(24)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.randn(12, 3)
y = x.prod(1, keepdim=True)


def loss_fn(params, inputs, targets):
    return (functional_call(model, params, (inputs,)) - targets).pow(2).mean()


params = {k: v.detach().clone() for k, v in model.named_parameters()}
for step in range(10):
    grads, loss = grad_and_value(loss_fn)(params, x, y)
    params = {k: p - 0.1 * grads[k] for k, p in params.items()}
    if step % 3 == 0:
        print("sgd", step, loss.item().hex())

per_sample = vmap(grad(loss_fn), in_dims=(None, 0, 0))(params, x, y)
norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_sample.values()]).norm(dim=0)
print("per sample", norms.double().sum().item().hex())

jacobian = vmap(jacrev(lambda v: functional_call(model, params, (v,))))(x)
print("jacobian", tuple(jacobian.shape), jacobian.double().sum().item().hex())


def loss_of_flat(w):
    return (torch.tanh(x @ w) - y.squeeze(1)).pow(2).mean()


hessian = torch.func.hessian(loss_of_flat)(torch.tensor([0.1, -0.2, 0.3]))
print("hessian", hessian.double().trace().item().hex())

models = [nn.Linear(3, 1) for _ in range(4)]
stacked, buffers = stack_module_state(models)
base = nn.Linear(3, 1, device="meta")
ensemble = vmap(lambda p, b: functional_call(base, (p, b), (x,)))
optimizer = torch.optim.SGD(stacked.values(), lr=0.05)
for _ in range(5):
    optimizer.zero_grad()
    loss = (ensemble(stacked, buffers) - y).pow(2).mean((1, 2)).sum()
    loss.backward()
    optimizer.step()
print("ensemble", loss.item().hex(), stacked["weight"].double().sum().item().hex())
print("parameters", sum(p.double().sum() for p in params.values()).item().hex())
