import torch
import torch.nn as nn
import torch.nn.functional as F


class SmallConvNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 8, 3)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x)).mean((2, 3))
        return self.fc(x)


def margin(logits, label, kappa=0.0):
    """How far the true class is ahead of the best other class."""
    one_hot = F.one_hot(label, logits.size(1)).bool()
    real = logits[one_hot]
    other = logits.masked_fill(one_hot, -1e4).max(1).values
    return torch.clamp(real - other + kappa, min=0).sum()


def atanh(x):
    x = x.clamp(1e-4, 1 - 1e-4)
    return 0.5 * torch.log(x / (1 - x))


def carlini_wagner(model, images, labels, c=1.0, steps=20, lr=0.05):
    model.eval()
    for p in model.parameters():
        p.requires_grad_(False)
    with torch.no_grad():
        print("clean:", model(images).argmax(1).tolist())
    w = atanh(images).clone().requires_grad_(True)
    optimizer = torch.optim.Adam([w], lr=lr)
    best = None
    for it in range(steps):
        adv = 0.5 * (torch.tanh(w) + 1)
        distance = F.mse_loss(adv, images, reduction="sum")
        logits = model(adv)
        cost = distance + c * margin(logits, labels)
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        if (logits.argmax(1) != labels).all():
            best = adv.detach().clone()
    return best if best is not None else adv.detach()


if __name__ == "__main__":
    torch.manual_seed(2)
    net = SmallConvNet()
    images = torch.rand(4, 1, 12, 12)
    labels = net(images).argmax(1)
    adversarial = carlini_wagner(net, images, labels)
    print("after:", net(adversarial).argmax(1).tolist())
