"""A scripted recurrent module with a loop and control flow, trained like an eager one."""

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.ih = nn.Linear(inputs, hidden)
        self.hh = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.ih(x) + self.hh(h))


class Model(nn.Module):
    def __init__(self, inputs: int = 2, hidden: int = 8):
        super().__init__()
        self.cell = Cell(inputs, hidden)
        self.out = nn.Linear(hidden, 1)
        self.hidden = hidden

    def forward(self, xs: torch.Tensor, reverse: bool = False) -> torch.Tensor:
        h = torch.zeros(xs.size(1), self.hidden)
        for i in range(xs.size(0)):
            x = xs[xs.size(0) - 1 - i] if reverse else xs[i]
            h = self.cell(x, h)
        return self.out(h)


@torch.jit.script
def huber(a: torch.Tensor, b: torch.Tensor, delta: float = 0.5) -> torch.Tensor:
    d = (a - b).abs()
    return torch.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)).mean()


torch.manual_seed(25)
model = torch.jit.script(Model())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
xs = torch.randn(6, 10, 2)
y = xs.sum((0, 2)).unsqueeze(1)
for step in range(8):
    optimizer.zero_grad()
    loss = huber(model(xs, step % 2 == 1), y)
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
