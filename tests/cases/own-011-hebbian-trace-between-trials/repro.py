import torch
from torch import nn


class PlasticLayer(nn.Module):
    """Slow weights learned by backprop, fast weights by a learned Hebbian rule."""

    def __init__(self, size):
        super().__init__()
        self.slow = nn.Parameter(0.1 * torch.randn(size, size))
        self.gain = nn.Parameter(0.05 * torch.randn(size, size))
        self.rate = nn.Parameter(torch.tensor(0.1))
        self.hebb = None

    def new_task(self):
        self.hebb = torch.zeros_like(self.slow)

    def forward(self, x):
        y = torch.tanh(x @ (self.slow + self.gain * self.hebb))
        self.hebb = (1 - self.rate) * self.hebb + self.rate * torch.outer(x, y)
        return y


def make_pattern(size):
    return torch.randint(0, 2, (size,)).float() * 2 - 1


def run_trial(layer, pattern, exposures=3):
    """Show the pattern a few times, then ask for it from a corrupted half."""
    for _ in range(exposures):
        layer(pattern)
    cue = pattern.clone()
    cue[: len(cue) // 2] = 0.0
    return (layer(cue) - pattern).square().mean()


def outer_loop(size=12, n_trials=9, trials_per_task=3):
    torch.manual_seed(9)
    layer = PlasticLayer(size)
    opt = torch.optim.Adam(layer.parameters(), lr=1e-2)
    scores = []
    for trial in range(n_trials):
        if trial % trials_per_task == 0:
            layer.new_task()
            pattern = make_pattern(size)
        loss = run_trial(layer, pattern)
        loss.backward()
        scores.append(loss.item())
        if trial % trials_per_task == trials_per_task - 1:
            opt.step()
            opt.zero_grad()
    return scores


if __name__ == "__main__":
    print([round(s, 3) for s in outer_loop()])
