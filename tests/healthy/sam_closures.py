"""Sharpness-aware minimisation: an optimizer that ascends, re-evaluates a closure and descends."""

import torch
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)

    @torch.no_grad()
    def first_step(self):
        scale = self.defaults["rho"] / (self.grad_norm() + 1e-12)
        for p in self.parameters():
            self.state[p]["old"] = p.clone()
            p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p in self.parameters():
            p.copy_(self.state[p].pop("old"))
        self.base.step()
        self.zero_grad()

    def parameters(self):
        return [p for g in self.param_groups for p in g["params"] if p.grad is not None]

    def grad_norm(self):
        return torch.stack([p.grad.norm() for p in self.parameters()]).norm()

    def step(self, closure):
        closure = torch.enable_grad()(closure)
        loss = closure()
        self.first_step()
        closure()
        self.second_step()
        return loss


torch.manual_seed(52)
model = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 2))
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
x = torch.randn(40, 5)
y = (x[:, 0] * x[:, 1] > 0).long()


def closure():
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


for step in range(15):
    loss = optimizer.step(closure)
    if step % 5 == 4:
        print(step, loss.item().hex())
model.zero_grad()
closure()
print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
