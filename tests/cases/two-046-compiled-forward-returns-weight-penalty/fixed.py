import torch
import torch.nn as nn
import torch.nn.functional as F


class SparseMLP(nn.Module):
    def __init__(self, n_in, width, classes):
        super().__init__()
        self.first, self.second = nn.Linear(n_in, width), nn.Linear(width, classes)

    def forward(self, x):
        logits = self.second(torch.relu(self.first(x)))
        groups = self.first.weight.square().sum(dim=0) + 1e-8
        return logits, groups.sqrt().sum()


def train_step(net, opt, x, y, strength):
    logits, penalty = net(x)
    ce = F.cross_entropy(logits, y)
    opt.zero_grad()
    (ce + strength * penalty).backward()
    opt.step()
    return ce.item(), penalty.item()


def main():
    torch.manual_seed(12)
    model = SparseMLP(10, 16, 3)
    net = torch.compile(model, backend="aot_eager")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randn(20, 10)
        strength = 0.0 if step < 2 else 1e-3
        print(step, train_step(net, opt, x, x[:, :3].argmax(1), strength))


if __name__ == "__main__":
    main()
