import torch
from torch import nn


class Trunk(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        self.l1, self.l2 = nn.Linear(n_in, width), nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.l2(torch.tanh(self.l1(x))))


class Net(nn.Module):
    def __init__(self, n_in, width, n_tasks):
        super().__init__()
        self.trunk = Trunk(n_in, width)
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(n_tasks))

    def forward(self, x):
        shared = self.trunk(x)
        return torch.cat([head(shared) for head in self.heads], dim=1)


def project(g, others):
    """Take from g what conflicts with the other tasks."""
    for o in others:
        dot = g @ o
        if dot < 0:
            g = g - dot / (o @ o) * o
    return g


def task_gradients(losses, params):
    flat = []
    for loss in losses:
        grads = torch.autograd.grad(loss, params)
        flat.append(torch.cat([g.reshape(-1) for g in grads]))
    return flat


def assign(params, vector):
    start = 0
    for p in params:
        p.grad = vector[start : start + p.numel()].view_as(p).clone()
        start += p.numel()


def pcgrad_step(net, opt, x, ys):
    out = net(x)
    losses = [nn.functional.mse_loss(out[:, i], ys[i]) for i in range(len(ys))]
    trunk = list(net.trunk.parameters())
    gs = task_gradients(losses, trunk)
    final = [project(g, [o for j, o in enumerate(gs) if j != i]) for i, g in enumerate(gs)]
    opt.zero_grad()
    assign(trunk, torch.stack(final).sum(0))
    opt.step()
    return [l.item() for l in losses]


if __name__ == "__main__":
    torch.manual_seed(4)
    net = Net(6, 16, 3)
    opt = torch.optim.Adam(net.trunk.parameters(), lr=1e-2)
    for it in range(4):
        x = torch.randn(32, 6)
        print(it, pcgrad_step(net, opt, x, [x[:, 0].sin(), x[:, 1] * x[:, 2], -x[:, 0]]))
