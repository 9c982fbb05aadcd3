import torch
from torch import nn

from base_trainer import BaseTrainer


def group_lasso(model):
    """One group an input feature: the columns of the first layer's weight."""
    return model[0].weight.norm(dim=0).sum()


class ClassifierTrainer(BaseTrainer):
    def compute_loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.model(x), y)


class FeatureSelectionTrainer(ClassifierTrainer):
    def __init__(self, model, strength, **kwargs):
        super().__init__(model, **kwargs)
        self.strength = strength

    def training_step(self, batch):
        loss = super().training_step(batch)
        penalty = self.strength * group_lasso(self.model)
        penalty.backward()
        return (loss + penalty).detach()


def batches(n, size, dim, classes):
    for _ in range(n):
        x = torch.randn(size, dim)
        yield x, x[:, :classes].argmax(1)


def main():
    torch.manual_seed(32)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
    FeatureSelectionTrainer(model, strength=1e-2, lr=0.05).fit(batches(5, 24, 12, 3))


if __name__ == "__main__":
    main()
