"""A callback-heavy training loop: logging, early stopping and best weights."""

import copy

import torch
from torch import nn


class Callback:
    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *args: None
        raise AttributeError(name)


class Logger(Callback):
    def __init__(self):
        self.losses = []

    def on_backward_end(self, loop, loss):
        self.losses.append(loss.item())

    def on_epoch_end(self, loop, val):
        print(loop.epoch, (sum(self.losses) / len(self.losses)).hex(), val.hex())
        self.losses.clear()


class BestWeights(Callback):
    def __init__(self):
        self.best, self.state = float("inf"), None

    def on_epoch_end(self, loop, val):
        if val < self.best:
            self.best, self.state = val, copy.deepcopy(loop.model.state_dict())

    def on_train_end(self, loop):
        loop.model.load_state_dict(self.state)


class EarlyStopping(Callback):
    bad, best, patience = 0, float("inf"), 3

    def on_epoch_end(self, loop, val):
        self.bad = 0 if val < self.best else self.bad + 1
        self.best = min(self.best, val)
        loop.stop = self.bad >= self.patience


class Loop:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        self.epoch, self.stop = 0, False

    def fire(self, event, *args):
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def fit(self, train, valid, epochs):
        while self.epoch < epochs and not self.stop:
            for x, y in zip(train[0].split(8), train[1].split(8), strict=True):
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.fire("on_backward_end", loss)
                self.optimizer.step()
            with torch.no_grad():
                val = nn.functional.mse_loss(self.model(valid[0]), valid[1]).item()
            self.fire("on_epoch_end", val)
            self.epoch += 1
        self.fire("on_train_end")


torch.manual_seed(45)
x = torch.randn(56, 3)
y = x[:, :1] * x[:, 1:2] + 0.1 * torch.randn(56, 1)
net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1))
best = BestWeights()
loop = Loop(net, [Logger(), best, EarlyStopping()])
loop.fit((x[:40], y[:40]), (x[40:], y[40:]), epochs=12)
print("stopped", loop.epoch, best.best.hex())
print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())
