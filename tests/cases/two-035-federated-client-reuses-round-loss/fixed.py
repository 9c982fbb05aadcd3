import copy
from collections import OrderedDict

import torch
import torch.nn as nn


class LogisticModel(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.norm = nn.LayerNorm(n_features)
        self.linear = nn.Linear(n_features, n_classes)

    def forward(self, x):
        return self.linear(self.norm(x))


class Client:
    def __init__(self, cid, data, weight):
        self.cid, self.data, self.weight = cid, data, weight

    def evaluate(self, model):
        x, y = self.data
        return nn.functional.cross_entropy(model(x), y)

    def optimise(self, optimizer, objective, scale):
        optimizer.zero_grad()
        (scale * objective).backward()
        optimizer.step()

    def local_update(self, global_model, local_steps, lr):
        model = copy.deepcopy(global_model)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for _ in range(local_steps):
            loss = self.evaluate(model)
            self.optimise(optimizer, loss, self.weight)
        return model.state_dict(), loss.item()


class Server:
    def __init__(self, model, clients):
        self.model, self.clients = model, clients

    def aggregate(self, states):
        weights = [c.weight for c in self.clients]
        mean = OrderedDict()
        for key in states[0]:
            mean[key] = sum(w * s[key] for w, s in zip(weights, states)) / sum(weights)
        self.model.load_state_dict(mean)

    def round(self, local_steps):
        results = [c.local_update(self.model, local_steps, lr=0.5) for c in self.clients]
        self.aggregate([s for s, _ in results])
        return [round(v, 4) for _, v in results]


def main():
    torch.manual_seed(1)
    clients = []
    for cid in range(3):
        x = torch.randn(20, 6) + 0.3 * cid
        clients.append(Client(cid, (x, x[:, :3].argmax(1)), weight=1.0 + cid))
    server = Server(LogisticModel(6, 3), clients)
    for r, local_steps in enumerate([1, 1, 3]):
        print("round", r, server.round(local_steps))


if __name__ == "__main__":
    main()
