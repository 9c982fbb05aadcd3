import torch
from torch import nn

from pseudo import soft_cross_entropy, soft_labels


def make_model(dim, classes):
    return nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))


def blobs(n, dim, classes):
    y = torch.randint(0, classes, (n,))
    return torch.randn(n, dim) + 2.0 * torch.eye(classes, dim)[y], y


class SelfTraining:
    def __init__(self, model, labelled, pool):
        self.model, self.labelled, self.pool = model, labelled, pool
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss(self, pick, soft):
        x, y = self.labelled
        supervised = nn.functional.cross_entropy(self.model(x), y)
        logits = self.model(self.pool[pick])
        return supervised + 0.5 * soft_cross_entropy(logits, soft[pick])

    def round(self, batch):
        soft = soft_labels(self.model, self.pool)
        total = 0.0
        for pick in torch.randperm(len(self.pool)).split(batch):
            loss = self.loss(pick, soft)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total


def main():
    torch.manual_seed(37)
    pool, _ = blobs(80, 6, 3)
    training = SelfTraining(make_model(6, 3), blobs(12, 6, 3), pool)
    for r in range(3):
        print(f"round {r}: {training.round(batch=20):.3f}")


if __name__ == "__main__":
    main()
