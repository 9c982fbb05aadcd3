"""Save a checkpoint in the middle of training, resume in a fresh model and match the first run."""

import random
import tempfile
from pathlib import Path

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    return model, optimizer, scheduler


def train(parts, start, stop):
    model, optimizer, scheduler = parts
    for step in range(start, stop):
        x = torch.randn(12, 4)
        loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(step, loss.item().hex())


def save(path, parts, step):
    names = ("model", "optimizer", "scheduler")
    state = {name: part.state_dict() for name, part in zip(names, parts, strict=True)}
    torch.save({**state, "step": step, "rng": torch.get_rng_state()}, path)


def load(path, parts):
    state = torch.load(path)
    for name, part in zip(("model", "optimizer", "scheduler"), parts, strict=True):
        part.load_state_dict(state[name])
    torch.set_rng_state(state["rng"])
    return state["step"]


def total(parts):
    return sum(p.double().sum() for p in parts[0].parameters()).item()


if __name__ == "__main__":
    random.seed(62)
    torch.manual_seed(62)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        first = build()
        train(first, 0, 5)
        save(path, first, 5)
        train(first, 5, 10)
        torch.manual_seed(999)
        second = build()
        train(second, load(path, second), 10)
    print("same", total(first) == total(second))
    print("parameters", total(second).hex())
