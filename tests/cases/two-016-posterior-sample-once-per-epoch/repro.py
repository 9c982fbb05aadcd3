import torch
import torch.nn.functional as F
from torch import nn


class GaussianWeights(nn.Module):
    """Mean-field posterior over the weights of one linear layer."""

    def __init__(self, n_out, n_in):
        super().__init__()
        self.mu = nn.Parameter(0.1 * torch.randn(n_out, n_in))
        self.rho = nn.Parameter(torch.full((n_out, n_in), -3.0))

    @property
    def sigma(self):
        return F.softplus(self.rho)

    def rsample(self):
        return self.mu + self.sigma * torch.randn_like(self.mu)

    def kl(self):
        s2 = self.sigma.square()
        return 0.5 * (s2 + self.mu.square() - 1 - s2.log()).sum()


class BayesianRegression(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.posterior = GaussianWeights(1, n_in)
        self.bias = nn.Parameter(torch.zeros(1))

    def draw(self, epoch, warmup=1):
        """Deterministic weights while warming up."""
        return self.posterior.mu if epoch < warmup else self.posterior.rsample()

    def nll(self, x, y, weight):
        return F.gaussian_nll_loss(F.linear(x, weight, self.bias), y, torch.ones_like(y))


def run_batches(model, opt, weight, batches, n_data):
    total = 0.0
    for x, y in batches:
        loss = model.nll(x, y, weight) + model.posterior.kl() / n_data
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(batches)


def main():
    torch.manual_seed(3)
    true = torch.randn(5, 1)
    data = []
    for _ in range(4):
        x = torch.randn(16, 5)
        data.append((x, x @ true + 0.1 * torch.randn(16, 1)))
    model = BayesianRegression(5)
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    for epoch in range(4):
        weight = model.draw(epoch)
        print(epoch, run_batches(model, opt, weight, data, n_data=64))


if __name__ == "__main__":
    main()
