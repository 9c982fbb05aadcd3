"""Learn to rebalance a portfolio, one trading day at a time."""
import torch
from torch import nn

LOG_WEALTH = torch.zeros(())


class Allocator(nn.Module):
    def __init__(self, n_assets, lookback):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(n_assets * lookback, 16), nn.Tanh(), nn.Linear(16, n_assets))

    def forward(self, window):
        return self.score(window.flatten()).softmax(-1)


def market(days, n_assets):
    drift = torch.linspace(-0.01, 0.02, n_assets)
    return 1.0 + drift + 0.03 * torch.randn(days, n_assets)


def trade(allocator, window, relatives):
    """Hold the portfolio for a day and book the result."""
    global LOG_WEALTH
    growth = torch.dot(allocator(window), relatives)
    LOG_WEALTH = LOG_WEALTH + growth.log()
    return -LOG_WEALTH


def end_of_day(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


def backtest(days=14, n_assets=4, lookback=3):
    torch.manual_seed(34)
    allocator = Allocator(n_assets, lookback)
    opt = torch.optim.Adam(allocator.parameters(), lr=1e-2)
    prices = market(days, n_assets)
    for day in range(lookback, days):
        window = prices[day - lookback : day] - 1.0
        end_of_day(opt, trade(allocator, window, prices[day]))
    return LOG_WEALTH.exp().item()


if __name__ == "__main__":
    print("final wealth", backtest())
