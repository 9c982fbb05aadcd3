"""Recover the rates and the starting point of a predator-prey system."""
import torch


def lotka_volterra(y, rates):
    prey, pred = y.unbind(-1)
    growth, eaten, feed, death = rates
    return torch.stack([growth * prey - eaten * prey * pred, feed * prey * pred - death * pred], -1)


def rk4_step(field, y, dt):
    k1 = field(y)
    k2 = field(y + 0.5 * dt * k1)
    k3 = field(y + 0.5 * dt * k2)
    k4 = field(y + dt * k3)
    return y + dt / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)


def integrate(field, y0, steps, dt):
    path = [y0]
    for _ in range(steps):
        path.append(rk4_step(field, path[-1], dt))
    return torch.stack(path)


def simulate(y0, rates, steps=12, dt=0.15):
    return integrate(lambda y: lotka_volterra(y, rates), y0, steps, dt)


def fit(observed, epochs, lr):
    log_y0 = torch.zeros(2, requires_grad=True)
    log_rates = torch.full((4,), -0.3, requires_grad=True)
    opt = torch.optim.Adam([log_y0, log_rates], lr=lr)
    y0 = log_y0.exp()
    for epoch in range(epochs):
        path = simulate(y0, log_rates.exp(), steps=len(observed) - 1)
        loss = (path.log() - observed.log()).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if epoch % 5 == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    return log_y0.exp().tolist(), log_rates.exp().tolist()


def main():
    with torch.no_grad():
        truth = simulate(torch.tensor([1.4, 0.8]), torch.tensor([1.1, 0.6, 0.5, 0.9]))
    print(fit(truth, epochs=15, lr=0.05))


if __name__ == "__main__":
    main()
