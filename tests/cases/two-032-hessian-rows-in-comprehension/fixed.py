import torch
from torch import nn
from torch.autograd import grad


class Potential(nn.Module):
    """Energy of three particles in the plane as a small network of their distances."""

    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.Softplus(), nn.Linear(width, 1))

    def forward(self, pos):
        pairs = pos.view(3, 2)
        d = torch.stack([(pairs[i] - pairs[j]).norm() for i, j in ((0, 1), (0, 2), (1, 2))])
        return self.net(d).squeeze() + 0.5 * (d - 1).square().sum()


def hessian(f, x):
    x = x.detach().requires_grad_()
    (g,) = grad(f(x), x, create_graph=True)
    return torch.stack([grad(gi, x, retain_graph=True)[0] for gi in g])


def newton(f, x, steps=5, damping=1e-2):
    for it in range(steps):
        H = hessian(f, x)
        x = x.detach().requires_grad_()
        (g,) = grad(f(x), x)
        x = x - torch.linalg.solve(H + damping * torch.eye(len(x)), g)
        print(f"  newton {it}: |g| = {g.norm():.4f}")
    return x.detach()


def frequencies(f, x):
    return torch.linalg.eigvalsh(hessian(f, x))


if __name__ == "__main__":
    torch.manual_seed(8)
    potential = Potential().double()
    start = torch.tensor([0.0, 0.0, 1.2, 0.1, 0.4, 1.0], dtype=torch.float64)
    minimum = newton(potential, start)
    print(frequencies(potential, minimum))
