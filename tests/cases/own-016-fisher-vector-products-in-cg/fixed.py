import torch
from torch import nn


def flatten(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def make_fisher_product(policy, obs, damping=0.1):
    params = list(policy.parameters())
    logp = policy(obs).log_softmax(-1)
    fixed = logp.detach()
    kl = (fixed.exp() * (fixed - logp)).sum(-1).mean()
    kl_grad = flatten(torch.autograd.grad(kl, params, create_graph=True))

    def product(vector):
        along = torch.dot(kl_grad, vector)
        second = torch.autograd.grad(along, params, retain_graph=True)
        return flatten(second) + damping * vector

    return product


def conjugate_gradient(product, b, iterations=8, tolerance=1e-8):
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr = r.dot(r)
    for _ in range(iterations):
        ap = product(p)
        step = rr / p.dot(ap)
        x += step * p
        r -= step * ap
        new = r.dot(r)
        if new < tolerance:
            break
        p = r + new / rr * p
        rr = new
    return x


def surrogate(policy, obs, actions, advantage):
    logp = policy(obs).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
    return (logp * advantage).mean()


def natural_step(policy, obs, actions, advantage, radius=0.01):
    params = list(policy.parameters())
    gradient = flatten(torch.autograd.grad(surrogate(policy, obs, actions, advantage), params))
    product = make_fisher_product(policy, obs)
    direction = conjugate_gradient(product, gradient)
    scale = (2 * radius / direction.dot(product(direction))).sqrt()
    offset = 0
    with torch.no_grad():
        for p in params:
            p += scale * direction[offset : offset + p.numel()].view_as(p)
            offset += p.numel()


if __name__ == "__main__":
    torch.manual_seed(14)
    policy = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))
    for it in range(3):
        obs, actions = torch.randn(40, 4), torch.randint(0, 3, (40,))
        advantage = (obs[:, 0] * (actions - 1)).detach()
        natural_step(policy, obs, actions, advantage)
        print(it, surrogate(policy, obs, actions, advantage).item())
