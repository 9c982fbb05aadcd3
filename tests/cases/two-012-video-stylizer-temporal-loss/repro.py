import torch
from torch import nn

from stylizer import VideoStylizer


class TransformNet(nn.Module):
    def __init__(self, ch=6):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, ch, 3, stride=2, padding=1), nn.InstanceNorm2d(ch, affine=True), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(ch, 3, 3, padding=1))

    def forward(self, x):
        return torch.sigmoid(self.up(self.down(x)))


class Features(nn.Module):
    """Stands in for the frozen VGG."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        for p in self.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        a = torch.relu(self.conv1(x))
        return a, torch.relu(self.conv2(a))


def main():
    torch.manual_seed(11)
    trainer = VideoStylizer(TransformNet(), Features(), style=torch.rand(1, 3, 16, 16))
    base = torch.rand(1, 3, 16, 16)
    for t in range(5):
        print(t, trainer.train_frame(base.roll(t, dims=-1)))


if __name__ == "__main__":
    main()
