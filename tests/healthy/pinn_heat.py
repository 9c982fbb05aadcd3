"""A physics-informed network for the heat equation, with second derivatives by create_graph."""

import math

import torch
from torch import nn


def derivative(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


def residual(net, x, t, alpha=0.1):
    x, t = x.requires_grad_(), t.requires_grad_()
    u = net(torch.cat([x, t], dim=1))
    u_x, u_t = derivative(u, x), derivative(u, t)
    return u_t - alpha * derivative(u_x, x)


def main():
    torch.manual_seed(50)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    edge_t = torch.linspace(0, 1, 10).unsqueeze(1)
    edge_x = torch.linspace(0, 1, 20).unsqueeze(1)
    for step in range(25):
        physics = residual(net, torch.rand(40, 1), torch.rand(40, 1)).pow(2).mean()
        start = net(torch.cat([edge_x, torch.zeros_like(edge_x)], dim=1))
        initial = (start - torch.sin(math.pi * edge_x)).pow(2).mean()
        left = net(torch.cat([torch.zeros_like(edge_t), edge_t], dim=1)).pow(2).mean()
        right = net(torch.cat([torch.ones_like(edge_t), edge_t], dim=1)).pow(2).mean()
        loss = physics + 10 * (initial + left + right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            print(step, physics.item().hex(), initial.item().hex(), (left + right).item().hex())
    print("gradients", sum(p.grad.double().abs().sum() for p in net.parameters()).item().hex())
    print("parameters", sum(p.double().sum() for p in net.parameters()).item().hex())


if __name__ == "__main__":
    main()
