import torch
from torch import nn
from torch.autograd import grad


class LearnedOptimizer(nn.Module):
    """Coordinate-wise LSTM that maps a gradient to an update."""

    def __init__(self, hidden=10):
        super().__init__()
        self.cell = nn.LSTMCell(1, hidden)
        self.out = nn.Linear(hidden, 1)
        self.hidden = hidden

    def initial(self, n):
        return torch.zeros(n, self.hidden), torch.zeros(n, self.hidden)

    def forward(self, g, state):
        h, c = self.cell(g.unsqueeze(1), state)
        return 0.1 * self.out(h).squeeze(1), (h, c)


class Quadratic:
    def __init__(self, n=6):
        self.W, self.y = torch.randn(n, n), torch.randn(n)

    def __call__(self, theta):
        return ((self.W @ theta - self.y) ** 2).sum()


def unroll(net, f, theta, state, steps):
    meta = 0.0
    for _ in range(steps):
        (g,) = grad(f(theta), theta)
        update, state = net(g, state)
        theta = theta + update
        meta = meta + f(theta)
    return meta, theta, state


def main():
    torch.manual_seed(10)
    net = LearnedOptimizer()
    meta_opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    f = Quadratic()
    theta = torch.zeros(6, requires_grad=True)
    state = net.initial(6)
    for it in range(5):
        meta, theta, state = unroll(net, f, theta, state, steps=4)
        meta_opt.zero_grad()
        meta.backward()
        meta_opt.step()
        state = tuple(s.detach() for s in state)
        theta = theta.detach().requires_grad_()
        print(it, meta.item())


main()
