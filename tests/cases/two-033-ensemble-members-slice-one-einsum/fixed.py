import torch
import torch.nn as nn
import torch.nn.functional as F


class BatchedLinear(nn.Module):
    """n linear layers side by side."""

    def __init__(self, n, n_in, n_out):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(n_in, n_out) / n_in**0.5) for _ in range(n)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(1, n_out)) for _ in range(n)])

    def forward(self, x):
        w, b = torch.stack(list(self.weights)), torch.stack(list(self.biases))
        return torch.einsum("nbi,nio->nbo", x, w) + b


class Ensemble(nn.Module):
    def __init__(self, n, n_in, width=16):
        super().__init__()
        self.n = n
        self.layers = nn.ModuleList([BatchedLinear(n, n_in, width), BatchedLinear(n, width, 1)])

    def forward(self, x):
        h = x.expand(self.n, *x.shape)
        for i, layer in enumerate(self.layers):
            h = layer(torch.relu(h) if i else h)
        return h.squeeze(-1)

    def member(self, m):
        return [p for layer in self.layers for p in (layer.weights[m], layer.biases[m])]


def train(ensemble, x, y, steps=4, lr=1e-2):
    optimizers = [torch.optim.Adam(ensemble.member(m), lr=lr) for m in range(ensemble.n)]
    for step in range(steps):
        mask = torch.rand(ensemble.n, len(x)) < 0.8
        out = ensemble(x)
        report = []
        losses = [F.mse_loss(out[m][mask[m]], y[mask[m]]) for m in range(ensemble.n)]
        for opt in optimizers:
            opt.zero_grad()
        sum(losses).backward()
        for opt, loss in zip(optimizers, losses):
            opt.step()
            report.append(round(loss.item(), 4))
        print(step, report)


torch.manual_seed(9)
x = torch.linspace(-1, 1, 30)[:, None]
train(Ensemble(3, 1), x, torch.sin(3 * x).squeeze(1))
