"""Saved-tensor hooks that pack activations to half precision, and save_on_cpu."""

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

packed = 0


def pack(t):
    global packed
    if t.is_leaf or t.dtype != torch.float32:
        return t
    packed += t.numel()
    return t.half()


def unpack(t):
    return t.float() if t.dtype == torch.float16 else t


torch.manual_seed(30)
model = nn.Sequential(nn.Linear(6, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.Sigmoid())
head = nn.Linear(16, 2)
params = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-2)
x, y = torch.randn(25, 6), torch.randint(0, 2, (25,))
for step in range(8):
    with saved_tensors_hooks(pack, unpack):
        h = model(x)
    with save_on_cpu():
        loss = nn.functional.cross_entropy(head(h), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 1:
        print(step, packed, loss.item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in params).item().hex())
print("parameters", sum(p.double().sum() for p in params).item().hex())
