from engine import Callback


class SparseActivations(Callback):
    """Keep the mean activation of every hidden unit near a small target."""

    def __init__(self, target=0.05, weight=0.1):
        self.target, self.weight = target, weight

    def extra_loss(self, outputs):
        mean = outputs["hidden"].mean(0)
        return self.weight * (mean - self.target).square().sum()
