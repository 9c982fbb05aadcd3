"""What the training run writes down."""


def gradient_norms(model, loss):
    """Names and gradient norms of the parameters, largest first."""
    norms = [(round(p.grad.norm().item(), 4), name) for name, p in model.named_parameters()]
    return sorted(norms, reverse=True)
