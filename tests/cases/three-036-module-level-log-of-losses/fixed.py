import time
import torch
from torch import nn

RECORDS = []


def log(step, **fields):
    RECORDS.append({"step": step, "time": time.perf_counter(), **fields})


class Denoiser(nn.Module):
    def __init__(self, dim, hidden=20):
        super().__init__()
        self.down = nn.Linear(dim, hidden)
        self.up = nn.Linear(hidden, dim)

    def forward(self, x):
        return x - self.up(torch.relu(self.down(x)))


def train(model, steps=40):
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    clean = torch.cumsum(torch.randn(64, 15), dim=1)
    for step in range(steps):
        noise = 0.5 * torch.randn_like(clean)
        loss = nn.functional.mse_loss(model(clean + noise), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(step, loss=loss.item(), lr=optimizer.param_groups[0]["lr"])


torch.manual_seed(37)
train(Denoiser(15))
best = min(RECORDS, key=lambda record: float(record["loss"]))
print("best step", best["step"], "loss", float(best["loss"]))
