import torch
from torch import nn
import torch.nn.functional as F


def make_encoder(n_in, width, dim):
    return nn.Sequential(nn.Linear(n_in, width), nn.ELU(), nn.Linear(width, dim))


class PrototypeHead:
    """Classifies by the distance to one moving-average prototype a class."""

    def __init__(self, momentum=0.9):
        self.momentum = momentum
        self.protos = {}

    def update(self, z, labels):
        for k in labels.unique().tolist():
            centre = z[labels == k].mean(0)
            if k in self.protos:
                self.protos[k] = self.momentum * self.protos[k] + (1 - self.momentum) * centre
            else:
                self.protos[k] = centre

    def logits(self, z):
        table = torch.stack([self.protos[k] for k in sorted(self.protos)])
        return -torch.cdist(z, table)


class FewShotTrainer:
    def __init__(self, encoder, head, lr):
        self.encoder, self.head = encoder, head
        self.opt = torch.optim.SGD(encoder.parameters(), lr=lr, momentum=0.9)

    def compute_loss(self, x, labels):
        z = F.normalize(self.encoder(x), dim=1)
        self.head.update(z, labels)
        return F.cross_entropy(self.head.logits(z), labels)

    def step(self, x, labels):
        self.opt.zero_grad()
        loss = self.compute_loss(x, labels)
        loss.backward()
        self.opt.step()
        return loss.item()


def toy_batch(n_classes, per_class, n_in):
    labels = torch.arange(n_classes).repeat_interleave(per_class)
    return torch.randn(len(labels), n_in) + labels[:, None] * 0.7, labels


if __name__ == "__main__":
    torch.manual_seed(2)
    trainer = FewShotTrainer(make_encoder(9, 24, 6), PrototypeHead(), lr=0.05)
    for it in range(5):
        print(it, round(trainer.step(*toy_batch(4, 8, 9)), 4))
