import torch
from torch import nn


class MonotoneBlend(nn.Module):
    """Score that may only rise with each of its learned features."""

    def __init__(self, inputs, features):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, features), nn.Softplus())
        self.mixing = nn.Parameter(torch.randn(features, 2) * 0.3)

    def forward(self, x):
        return self.features(x) @ self.mixing

    def project(self):
        with torch.no_grad():
            self.mixing.clamp_(min=0)


class Fitter:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)

    def step(self, x, y):
        risk = self.model(x)
        loss = nn.functional.mse_loss(risk, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.model.project()
        return loss.item()


torch.manual_seed(19)
fitter = Fitter(MonotoneBlend(4, 10), lr=0.02)
for month in range(3):
    x = torch.rand(32, 4)
    y = torch.stack([x.sum(1), x[:, 0] * x[:, 2]], dim=1)
    print(month, fitter.step(x, y))
