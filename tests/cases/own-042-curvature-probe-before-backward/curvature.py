import torch


def rademacher_like(tensors):
    return [torch.randint_like(t, 2) * 2 - 1 for t in tensors]


def dot(left, right):
    return sum((a * b).sum() for a, b in zip(left, right))


class TraceProbe:
    """Hutchinson's estimate of the trace of the Hessian."""

    def __init__(self, params, probes=1):
        self.params, self.probes = list(params), probes

    def product(self, grads, vector):
        return torch.autograd.grad(dot(grads, vector), self.params)

    def __call__(self, loss):
        grads = torch.autograd.grad(loss, self.params, create_graph=True)
        estimate = 0.0
        for _ in range(self.probes):
            vector = rademacher_like(self.params)
            estimate += dot(vector, self.product(grads, vector)).item()
        return estimate / self.probes
