import torch
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduction=4):
        super().__init__()
        self.down = nn.Linear(channels, channels // reduction)
        self.up = nn.Linear(channels // reduction, channels)

    def forward(self, x):
        pooled = x.mean(dim=(2, 3))
        w = torch.sigmoid(self.up(torch.relu(self.down(pooled))))
        w += 1.0
        return x * w[:, :, None, None]


class PlanktonNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, stride=2)
        self.blocks = nn.ModuleList([SqueezeExcite(8), SqueezeExcite(8)])
        self.classify = nn.Linear(8, classes)

    def forward(self, images):
        x = torch.relu(self.stem(images))
        for block in self.blocks:
            x = block(x)
        return self.classify(x.amax(dim=(2, 3)))


torch.manual_seed(1)
net = PlanktonNet()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for epoch in range(2):
    images, labels = torch.rand(6, 1, 14, 14), torch.randint(0, 5, (6,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    print(epoch, round(loss.item(), 4))
