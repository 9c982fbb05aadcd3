import torch
from torch import nn


class Catchment(nn.Module):
    """Rainfall fills a set of linear reservoirs that drain at learned rates."""

    def __init__(self, reservoirs=4):
        super().__init__()
        self.log_rate = nn.Parameter(torch.linspace(-2.0, -0.5, reservoirs))
        self.share = nn.Parameter(torch.zeros(reservoirs))

    def forward(self, rain):
        days = rain.shape[0]
        share = torch.softmax(self.share, dim=0)
        keep = 1 - torch.sigmoid(self.log_rate)
        levels = torch.zeros(len(share), days)
        for t in range(1, days):
            inflow = share * rain[t]
            levels[:, t] = levels[:, t - 1] * keep + inflow
        drained = (1 - keep).unsqueeze(1) * levels
        return drained.sum(dim=0)


def nash_sutcliffe(simulated, observed):
    residual = (simulated - observed).square().sum()
    return 1 - residual / (observed - observed.mean()).square().sum()


if __name__ == "__main__":
    torch.manual_seed(3)
    rain = torch.rand(30).pow(4) * 20
    observed = torch.nn.functional.avg_pool1d(rain[None], 5, 1, 2)[0]
    model = Catchment()
    optimiser = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for step in range(3):
        flow = model(rain)
        loss = -nash_sutcliffe(flow, observed)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        print(step, loss.item())
