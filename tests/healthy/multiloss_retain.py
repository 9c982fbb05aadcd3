"""Two task losses on one trunk, back-propagated one after the other over one graph."""

import torch
from torch import nn

torch.manual_seed(36)
trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
head_a, head_b = nn.Linear(16, 1), nn.Linear(16, 3)
params = [*trunk.parameters(), *head_a.parameters(), *head_b.parameters()]
optimizer = torch.optim.Adam(params, lr=5e-3)
x = torch.randn(40, 6)
ya, yb = x.sum(1, keepdim=True), (x[:, 0] > 0).long() + (x[:, 1] > 0).long()

for step in range(12):
    shared = trunk(x)
    loss_a = nn.functional.mse_loss(head_a(shared), ya)
    loss_b = nn.functional.cross_entropy(head_b(shared), yb)
    optimizer.zero_grad()
    loss_a.backward(retain_graph=True)
    norm_a = trunk[0].weight.grad.norm()
    before = trunk[0].weight.grad.clone()
    loss_b.backward()
    norm_b = (trunk[0].weight.grad - before).norm()
    optimizer.step()
    if step % 4 == 3:
        print(step, loss_a.item().hex(), loss_b.item().hex(), (norm_a / norm_b).item().hex())

# The same two gradients for the trunk, once as a sum.
shared = trunk(x)
loss_a = nn.functional.mse_loss(head_a(shared), ya)
loss_b = nn.functional.cross_entropy(head_b(shared), yb)
(together,) = torch.autograd.grad(loss_a + loss_b, trunk[0].weight)
print("together", together.double().sum().item().hex())
print("parameters", sum(p.double().sum() for p in params).item().hex())
