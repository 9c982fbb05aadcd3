"""torch.func, forward mode, functional hessians and parametrizations give what they give alone."""

import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
params = dict(model.named_parameters())
x, y = torch.randn(6, 3), torch.randn(6, 1)


def hexes(tree):
    return [leaf.double().sum().item().hex() for leaf in torch.utils._pytree.tree_leaves(tree)]


def loss(p, x, y):
    return (functional_call(model, p, (x,)) - y).square().mean()


print("grad", hexes(grad(loss)(params, x, y)))
print("per sample", hexes(vmap(grad(loss), (None, 0, 0))(params, x, y)))
print("jacrev", hexes(jacrev(loss, argnums=1)(params, x, y)))
print("jacfwd", hexes(jacfwd(loss, argnums=1)(params, x, y)))
print("hessian", hexes(hessian(loss, argnums=1)(params, x, y)))
print("vjp", hexes(vjp(lambda x: model(x), x)[1](y)))
print("jvp", hexes(jvp(lambda x: model(x), (x,), (x,))))
print("linearize", hexes(linearize(lambda x: model(x), x)[1](x)))
print("random", hexes(vmap(lambda x: x + torch.rand(3), randomness="different")(x)))
print("random", hexes(vmap(lambda x: nn.functional.dropout(x, 0.5), randomness="same")(x)))
ensemble = [nn.Linear(3, 2) for _ in range(3)]
state, buffers = stack_module_state(ensemble)
print("ensemble", hexes(vmap(lambda p, b: functional_call(ensemble[0], (p, b), (x,)))(state, buffers)))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g

    @staticmethod
    def vmap(info, in_dims, x):
        print("vmap", info, in_dims)
        return Cube.apply(x), in_dims[0]


print("function", hexes(grad(lambda x: Cube.apply(x).sum())(x)), hexes(vmap(Cube.apply)(x)))
print("function", hexes(vmap(grad(lambda x: Cube.apply(x).sum()))(x)))
try:
    vmap(lambda x: x.item())(x)
except RuntimeError as error:
    print(str(error).splitlines()[0])
print("autograd.functional", hexes(torch.autograd.functional.jacobian(lambda x: model(x).sum(0), x)))
print("autograd.functional", hexes(torch.autograd.functional.hessian(lambda x: model(x).sum(), x)))
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
    print("dual", hexes(torch.autograd.forward_ad.unpack_dual(model(dual)).tangent))
print("gradcheck", torch.autograd.gradcheck(Cube.apply, x.double().requires_grad_()))
nn.utils.parametrizations.spectral_norm(model[0])
nn.utils.parametrizations.weight_norm(model[2])
model(x).sum().backward()
print("parametrized", hexes([p.grad for p in model.parameters()]))
