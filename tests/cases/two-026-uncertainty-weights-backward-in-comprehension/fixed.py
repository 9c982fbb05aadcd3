import torch
from torch import nn
from torch.nn import functional as F


class Backbone(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.stem = nn.Conv2d(3, ch, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Conv2d(ch, ch, 3, padding=1) for _ in range(2)])

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return x.mean((2, 3))


class MultiTask(nn.Module):
    def __init__(self, sizes, ch=8):
        super().__init__()
        self.backbone = Backbone(ch)
        self.heads = nn.ModuleList([nn.Linear(ch, n) for n in sizes])
        self.log_vars = nn.Parameter(torch.zeros(len(sizes)))

    def forward(self, x):
        f = self.backbone(x)
        return [head(f) for head in self.heads]

    def weigh(self, losses):
        return [torch.exp(-s) * l + s for s, l in zip(self.log_vars, losses)]


def task_losses(outs, targets):
    fns = {0: F.cross_entropy, 1: F.mse_loss, 2: F.binary_cross_entropy_with_logits}
    return [fns[i](o, t) for i, (o, t) in enumerate(zip(outs, targets))]


def make_batch(n=6):
    return torch.rand(n, 3, 8, 8), (torch.randint(0, 4, (n,)), torch.randn(n, 2), torch.randint(0, 2, (n, 1)).float())


def main():
    torch.manual_seed(2)
    net = MultiTask([4, 2, 1])
    opt = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for it in range(4):
        x, targets = make_batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outs = net(x)
        losses = net.weigh(task_losses([o.float() for o in outs], targets))
        opt.zero_grad()
        scaler.scale(sum(losses)).backward()
        scaler.step(opt)
        scaler.update()
        print(it, [round(l.item(), 3) for l in losses])


if __name__ == "__main__":
    main()
