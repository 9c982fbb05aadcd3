import torch
import torch.nn.functional as F
from torch import nn


class Bank:
    def __init__(self, n_classes, momentum=0.7):
        self.protos = [None] * n_classes
        self.momentum = momentum

    def put(self, c, mean):
        old = self.protos[c]
        self.protos[c] = mean if old is None else self.momentum * old + (1 - self.momentum) * mean

    def matrix(self):
        seen = [c for c, p in enumerate(self.protos) if p is not None]
        return seen, torch.stack([self.protos[c] for c in seen])


class ProtoNet(nn.Module):
    def __init__(self, n_in, dim):
        super().__init__()
        self.conv = nn.Conv1d(1, dim, 5, padding=2)
        self.fc = nn.Linear(dim, dim)

    def embed(self, x):
        return self.fc(torch.relu(self.conv(x.unsqueeze(1))).mean(-1))


class Learner:
    def __init__(self, net, n_classes):
        self.net = net
        self.bank = Bank(n_classes)
        self.opt = torch.optim.Adam(net.parameters(), lr=3e-3)

    def episode(self, support, query):
        (sx, sy), (qx, qy) = support, query
        zs = self.net.embed(sx)
        for c in sy.unique().tolist():
            self.bank.put(c, zs[sy == c].mean(0))
        zq = self.net.embed(qx)
        seen, protos = self.bank.matrix()
        logits = -torch.cdist(zq, protos) ** 2
        target = torch.tensor([seen.index(int(c)) for c in qy])
        loss = F.cross_entropy(logits, target)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.bank.protos = [p if p is None else p.detach() for p in self.bank.protos]
        return loss.item()


def draw(classes, n, length=24):
    y = torch.tensor(classes).repeat_interleave(n)
    phase = torch.linspace(0, 6, length)
    return torch.sin(phase * (1 + y[:, None])) + 0.2 * torch.randn(len(y), length), y


torch.manual_seed(5)
learner = Learner(ProtoNet(24, 10), n_classes=6)
for episode, classes in enumerate([[0, 1], [2, 3], [4, 5], [1, 4]]):
    print(episode, learner.episode(draw(classes, 4), draw(classes, 3)))
