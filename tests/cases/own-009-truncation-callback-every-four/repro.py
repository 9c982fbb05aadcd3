import torch
from torch import nn

from callbacks import KeepState, Report, TruncateState
from engine import Trainer


class SensorModel(nn.Module):
    def __init__(self, n_sensors, width):
        super().__init__()
        self.core = nn.GRU(n_sensors, width, batch_first=True)
        self.readout = nn.Linear(width, n_sensors)
        self.last_state = None

    def loss(self, window, state):
        hidden, self.last_state = self.core(window[:, :-1], state)
        return (self.readout(hidden) - window[:, 1:]).square().mean()


def windows(n, batch, length, n_sensors):
    walk = torch.randn(batch, n * length, n_sensors).cumsum(1) * 0.1
    return walk.split(length, dim=1)


def main():
    torch.manual_seed(7)
    model = SensorModel(n_sensors=3, width=12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    callbacks = [KeepState(), TruncateState(every=4), Report(every=4)]
    Trainer(model, optimizer, callbacks).fit(windows(12, 5, 10, 3))


if __name__ == "__main__":
    main()
