"""A compiled model with the eager backend, a graph break in the middle and an uncompiled loop."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.a(x))
        torch._dynamo.graph_break()
        return self.b(h)


torch.manual_seed(22)
net = Net()
model = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(16, 6)
y = x[:, :2] * 2 - x[:, 2:4]
for step in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())
