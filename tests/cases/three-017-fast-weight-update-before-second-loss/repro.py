import torch

torch.manual_seed(41)


def layer_params(sizes):
    weights = []
    for a, b in zip(sizes, sizes[1:]):
        weights.append((torch.randn(a, b) / a**0.5).requires_grad_())
    return weights


def apply(weights, x):
    for w in weights[:-1]:
        x = torch.tanh(x @ w)
    return x @ weights[-1]


def descend(loss, weights, lr):
    grads = torch.autograd.grad(loss, weights, retain_graph=True)
    with torch.no_grad():
        for w, g in zip(weights, grads):
            w -= lr * g


def main():
    weights = layer_params([2, 20, 20, 1])
    interior = torch.rand(40, 2)
    border = torch.cat([torch.rand(10, 1), torch.zeros(10, 1)], dim=1)
    for sweep in range(3):
        u = apply(weights, torch.cat([interior, border]))
        residual = (u[:40, 0] - interior.prod(1)).square().mean()
        edge = u[40:].square().mean()
        descend(residual, weights, lr=0.1)
        descend(edge, weights, lr=0.02)
        print(sweep, residual.item(), edge.item())


if __name__ == "__main__":
    main()
