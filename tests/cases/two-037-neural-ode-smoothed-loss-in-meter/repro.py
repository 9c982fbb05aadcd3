import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, dim=2, width=16):
        super().__init__()
        self.a, self.b = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, t, y):
        return self.b(torch.tanh(self.a(y**3)))


def heun(f, y, ts):
    """Integrates y' = f(t, y) and returns all the states."""
    ys = [y]
    for t0, t1 in zip(ts[:-1], ts[1:]):
        dt = t1 - t0
        k1 = f(t0, y)
        k2 = f(t1, y + dt * k1)
        y = y + dt * (k1 + k2) / 2
        ys.append(y)
    return torch.stack(ys)


def spiral(ts):
    decay = torch.exp(-0.1 * ts)
    return torch.stack([decay * torch.cos(2 * ts), decay * torch.sin(2 * ts)], dim=1)


meters = {}


def track(key, value, momentum=0.9):
    """Running average of a loss term."""
    old = meters.get(key)
    meters[key] = value if old is None else momentum * old + (1 - momentum) * value
    return meters[key]


def loss_terms(f, ts, truth):
    path = heun(f, truth[0], ts)
    fit = (path - truth).abs().mean()
    kinetic = (path[1:] - path[:-1]).square().sum(1).mean()
    return fit, kinetic


def main():
    torch.manual_seed(3)
    ts = torch.linspace(0, 2, 9)
    truth = spiral(ts)
    f = Field()
    opt = torch.optim.RMSprop(f.parameters(), lr=1e-3)
    for it in range(6):
        fit, kinetic = loss_terms(f, ts, truth)
        objective = track("fit", fit) + 0.01 * track("kinetic", kinetic)
        opt.zero_grad()
        objective.backward()
        opt.step()
        print(it, {k: round(float(v.detach()), 4) for k, v in meters.items()})


if __name__ == "__main__":
    main()
