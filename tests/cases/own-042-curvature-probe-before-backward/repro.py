import torch
from torch import nn

from curvature import TraceProbe


class CurvatureAware:
    """Lower the weight of batches whose loss surface is sharp."""

    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)
        self.probe = TraceProbe(model.parameters())

    def loss(self, x, y):
        return nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)

    def weighted(self, loss):
        trace = self.probe(loss)
        return loss / (1.0 + abs(trace)), trace

    def step(self, x, y):
        loss = self.loss(x, y)
        value, trace = self.weighted(loss)
        self.opt.zero_grad()
        value.backward()
        self.opt.step()
        return loss.item(), trace


def moons(n):
    y = torch.randint(0, 2, (n,)).float()
    angle = torch.rand(n) * torch.pi
    sign = 1 - 2 * y
    x = torch.stack([sign * angle.cos() + y, sign * angle.sin() - 0.5 * y], dim=1)
    return x + 0.05 * torch.randn(n, 2), y


def main():
    torch.manual_seed(40)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    learner = CurvatureAware(model, lr=0.5)
    for it in range(5):
        loss, trace = learner.step(*moons(40))
        print(f"{it}: loss {loss:.4f}, trace {trace:.3f}")


if __name__ == "__main__":
    main()
