import torch
from torch import nn


def forecaster(cell, head):
    """Coroutine: send it a reading, get back the forecast for the next hour."""
    h = torch.zeros(1, cell.hidden_size)
    forecast = None
    while True:
        reading = yield forecast
        h = cell(reading, h.detach())
        forecast = head(h)


def daily_load(hours, generator):
    t = torch.arange(hours, dtype=torch.float32)
    load = 2.0 + torch.sin(t * 2 * torch.pi / 24) + 0.1 * torch.randn(hours, generator=generator)
    hour = torch.stack([torch.sin(t * 2 * torch.pi / 24), torch.cos(t * 2 * torch.pi / 24)], 1)
    return torch.cat([load[:, None], hour], dim=1)


class OnlineFit:
    def __init__(self, width=10):
        self.cell = nn.GRUCell(3, width)
        self.head = nn.Linear(width, 1)
        params = [*self.cell.parameters(), *self.head.parameters()]
        self.opt = torch.optim.Adam(params, lr=3e-3)
        self.stream = forecaster(self.cell, self.head)
        next(self.stream)

    def forecast_error(self, reading, upcoming):
        forecast = self.stream.send(reading)
        return nn.functional.huber_loss(forecast, upcoming)

    def learn(self, reading, upcoming):
        error = self.forecast_error(reading, upcoming)
        self.opt.zero_grad()
        error.backward()
        self.opt.step()
        return error.detach()


def run(hours=48):
    readings = daily_load(hours, torch.Generator().manual_seed(5))
    fit = OnlineFit()
    errors = [fit.learn(now[None], after[None, :1]) for now, after in zip(readings, readings[1:])]
    return torch.stack(errors)


if __name__ == "__main__":
    torch.manual_seed(5)
    errors = run()
    print("mean error first and last 12 hours:", errors[:12].mean().item(), errors[-12:].mean().item())
