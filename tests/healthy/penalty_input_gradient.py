"""An R1-style input-gradient penalty through autograd.grad, under anomaly detection."""

import torch
from torch import nn


def r1_penalty(model, x):
    x = x.detach().requires_grad_(True)
    score = model(x)
    (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    return score, gradient.flatten(1).pow(2).sum(1).mean()


def main():
    torch.manual_seed(37)
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.Softplus(), nn.Flatten(), nn.Linear(96, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x = torch.randn(20, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).float().unsqueeze(1)
    with torch.autograd.set_detect_anomaly(True):
        for step in range(8):
            score, penalty = r1_penalty(model, x)
            fit = nn.functional.binary_cross_entropy_with_logits(score, y)
            loss = fit + 0.5 * penalty
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            print(step, fit.item().hex(), penalty.item().hex())
    for name, p in model.named_parameters():
        print(name, p.grad.double().abs().sum().item().hex(), p.double().sum().item().hex())


if __name__ == "__main__":
    main()
