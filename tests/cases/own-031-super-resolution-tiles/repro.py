import torch
from torch import nn


class Backbone(nn.Sequential):
    def __init__(self, channels):
        first = nn.Conv2d(1, channels, 5, padding=2)
        second = nn.Conv2d(channels, channels, 3, padding=1)
        super().__init__(first, nn.PReLU(), second)


class Upsampler(nn.Module):
    def __init__(self, channels, factor):
        super().__init__()
        self.expand = nn.Conv2d(channels, factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, features):
        return self.shuffle(self.expand(features))


def tiles(features, target, size, factor):
    """Yield matching windows of the feature map and the large picture."""
    for top in range(0, features.size(2), size):
        for left in range(0, features.size(3), size):
            tile = features[:, :, top : top + size, left : left + size]
            y, x = top * factor, left * factor
            yield tile, target[:, :, y : y + size * factor, x : x + size * factor]


class SuperResolution:
    def __init__(self, channels=8, factor=2):
        self.factor = factor
        self.backbone, self.upsampler = Backbone(channels), Upsampler(channels, factor)
        params = [*self.backbone.parameters(), *self.upsampler.parameters()]
        self.opt = torch.optim.Adam(params, lr=1e-3)

    def tile_loss(self, tile, target):
        return (self.upsampler(tile) - target).abs().mean()

    def step(self, small, large, size=6):
        features = self.backbone(small)
        self.opt.zero_grad()
        total = 0.0
        for tile, target in tiles(features, large, size, self.factor):
            loss = self.tile_loss(tile, target)
            loss.backward()
            total += loss.item()
        self.opt.step()
        return total


def main():
    torch.manual_seed(29)
    task = SuperResolution()
    for it in range(3):
        large = torch.rand(2, 1, 24, 24)
        small = nn.functional.avg_pool2d(large, 2)
        print(it, task.step(small, large))


if __name__ == "__main__":
    main()
