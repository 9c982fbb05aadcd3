import torch
from torch import nn


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def average(self):
        return float(self.total) / max(1, self.count)


def make_net():
    return nn.Sequential(nn.Linear(6, 12), nn.Hardswish(), nn.Linear(12, 1))


def epoch(net, optimizer, meter, steps):
    meter.reset()
    for _ in range(steps):
        road = torch.randn(10, 6)
        grip = torch.tanh(road[:, :1] - road[:, 3:4])
        loss = nn.functional.l1_loss(net(road), grip)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss, n=len(road))
    return meter.average


torch.manual_seed(35)
net, meter = make_net(), AverageMeter()
optimizer = torch.optim.RAdam(net.parameters(), lr=0.01)
for number in range(2):
    print(number, epoch(net, optimizer, meter, steps=30))
