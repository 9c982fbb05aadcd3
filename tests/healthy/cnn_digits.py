"""A small convolutional classifier on synthetic 12x12 digit-like images, with a test pass."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.fc1 = nn.Linear(16 * 9, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.drop(torch.flatten(x, 1))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def images(count, classes=4):
    prototypes = torch.rand(classes, 1, 12, 12, generator=torch.Generator().manual_seed(7))
    labels = torch.arange(count) % classes
    return prototypes[labels] + 0.3 * torch.randn(count, 1, 12, 12), labels


def train(model, optimizer, data, target, epoch):
    model.train()
    for i in range(0, len(data), 16):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data[i : i + 16]), target[i : i + 16])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item().hex()}")


def test(model, data, target):
    model.eval()
    correct, total = 0, 0.0
    with torch.no_grad():
        output = model(data)
        total += F.nll_loss(output, target, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct += pred.eq(target.view_as(pred)).sum().item()
    print(f"test loss {(total / len(data)).hex()} correct {correct}/{len(data)}")


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
train_set, test_set = images(96), images(32)
for epoch in range(3):
    train(model, optimizer, *train_set, epoch)
    test(model, *test_set)
    scheduler.step()
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
