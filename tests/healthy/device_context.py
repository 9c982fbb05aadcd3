"""Training under set_default_device and under torch.device used as a context manager."""

import torch
from torch import nn


def train(steps, device):
    model = nn.Sequential(nn.Linear(3, 10), nn.Hardswish(), nn.Linear(10, 1)).to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    x = torch.rand(16, 3).to(device, non_blocking=True)
    y = torch.linspace(0, 1, 16, device=device).unsqueeze(1)
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(x), y) + 0.0 * torch.zeros(())
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            print(step, loss.device, loss.item().hex())
    return sum(p.double().sum() for p in model.parameters()).item().hex()


torch.manual_seed(54)
with torch.device("cpu"):
    print("context", torch.empty(2).device, train(8, "cpu"))

torch.set_default_device("cpu")
print("default", torch.get_default_device(), train(8, torch.device("cpu")))

with torch.device("meta"):
    skeleton = nn.Linear(3, 10)
real = skeleton.to_empty(device="cpu")
nn.init.orthogonal_(real.weight)
nn.init.zeros_(real.bias)
real(torch.ones(1, 3)).sum().backward()
print("meta", real.weight.double().sum().item().hex(), real.bias.grad.sum().item().hex())
torch.set_default_device(None)
print("again", train(4, torch.get_default_device()))
