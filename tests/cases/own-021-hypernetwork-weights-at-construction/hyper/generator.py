import math

from torch import nn


class WeightGenerator(nn.Module):
    """Maps a task code to the weight matrices of a small network."""

    def __init__(self, code_dim, shapes):
        super().__init__()
        self.shapes = shapes
        total = sum(math.prod(shape) for shape in shapes)
        self.net = nn.Sequential(nn.Linear(code_dim, 32), nn.ReLU(), nn.Linear(32, total))

    def forward(self, code):
        flat = self.net(code)
        parts = flat.split([math.prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes)]
