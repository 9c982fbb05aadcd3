"""Tensor hooks, module forward and full backward hooks, and hooks after gradient accumulation."""

import torch
from torch import nn

torch.manual_seed(29)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
activations, grad_norms, accumulated = {}, {}, []


def save_activation(name):
    def hook(module, inputs, output):
        activations[name] = output.detach()

    return hook


def save_grad(module, grad_input, grad_output):
    grad_norms[module] = grad_output[0].norm().item()


def scale_input(module, args):
    return (args[0] * 0.5,)


handles = [model[1].register_forward_hook(save_activation("tanh1"))]
handles.append(model[0].register_forward_pre_hook(scale_input))
for layer in (model[2], model[4]):
    handles.append(layer.register_full_backward_hook(save_grad))
model[4].weight.register_hook(lambda g: g.clamp(-0.5, 0.5))
model[4].bias.register_post_accumulate_grad_hook(lambda p: accumulated.append(p.grad.item()))

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(20, 4)
y = x.sum(1, keepdim=True)
seen = []
for step in range(6):
    out = model(x)
    out.register_hook(lambda g: seen.append(g.norm().item()))
    out.retain_grad()
    loss = nn.functional.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    norms = [grad_norms[m].hex() for m in (model[2], model[4])]
    print(step, loss.item().hex(), *norms, out.grad.double().sum().item().hex())
for handle in handles:
    handle.remove()
model(x).sum().backward()
print(len(seen), len(accumulated), seen[-1].hex(), accumulated[-1].hex())
print("activation", activations["tanh1"].double().sum().item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
