"""A traced network, trained, saved to a buffer, loaded again and compared with the original."""

import io

import torch
from torch import nn

torch.manual_seed(26)
net = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.LayerNorm(10), nn.Linear(10, 2))
example = torch.randn(3, 4)
traced = torch.jit.trace(net, example)
optimizer = torch.optim.SGD(traced.parameters(), lr=0.1)
x = torch.randn(18, 4)
y = (x[:, 0] * x[:, 1] > 0).long()
for step in range(10):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(traced(x), y)
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(step, loss.item().hex())

buffer = io.BytesIO()
torch.jit.save(traced, buffer)
buffer.seek(0)
loaded = torch.jit.load(buffer)
with torch.no_grad():
    print("same", torch.equal(loaded(x), traced(x)), torch.allclose(net(x), loaded(x)))
print("gradients", sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())
