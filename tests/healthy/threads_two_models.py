"""Two threads that each train a model of their own at the same time."""

import threading

import torch
from torch import nn


class Worker(threading.Thread):
    def __init__(self, name, model, seed):
        super().__init__(name=name)
        self.model = model
        self.generator = torch.Generator().manual_seed(seed)
        self.losses = []

    def run(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(30):
            x = torch.randn(16, 4, generator=self.generator)
            y = x.cos().sum(1, keepdim=True)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            optimizer.step()
            self.losses.append(loss.item())


def build(hidden):
    return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 1))


torch.manual_seed(43)
workers = [Worker("small", build(8), 1), Worker("large", build(32), 2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
for worker in workers:
    total = sum(p.double().sum() for p in worker.model.parameters()).item()
    print(worker.name, len(worker.losses), worker.losses[-1].hex(), total.hex())
