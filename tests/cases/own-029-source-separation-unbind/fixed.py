import torch
from torch import nn


class Separator(nn.Module):
    """Predicts one mask a source over a learned filter bank."""

    def __init__(self, n_sources, filters=16, width=9):
        super().__init__()
        self.n_sources = n_sources
        self.analysis = nn.Conv1d(1, filters, width, stride=4, padding=width // 2)
        self.masks = nn.Conv1d(filters, n_sources * filters, 1)
        self.synthesis = nn.ConvTranspose1d(filters, 1, width, stride=4, padding=width // 2, output_padding=3)

    def forward(self, mixture):
        bank = torch.relu(self.analysis(mixture[:, None]))
        masks = self.masks(bank).unflatten(1, (self.n_sources, -1)).sigmoid()
        masked = (masks * bank[:, None]).flatten(0, 1)
        return self.synthesis(masked).view(len(mixture), self.n_sources, -1)


def si_sdr(estimate, source, eps=1e-8):
    """Scale-invariant signal-to-distortion ratio in decibels."""
    scale = (estimate * source).sum(-1, keepdim=True) / (source.square().sum(-1, keepdim=True) + eps)
    target = scale * source
    noise = estimate - target
    return 10 * torch.log10(target.square().sum(-1) / (noise.square().sum(-1) + eps) + eps)


def separation_step(model, sources):
    estimates = model(sources.sum(1))
    ratios = []
    for estimate, source in zip(estimates.unbind(1), sources.unbind(1)):
        ratio = si_sdr(estimate, source).mean()
        ratios.append(ratio)
    (-sum(ratios)).backward()
    return [ratio.item() for ratio in ratios]


def tones(batch, n_sources, length):
    t = torch.arange(length) / 50.0
    pitch = 1.0 + 4.0 * torch.rand(batch, n_sources, 1)
    return torch.sin(2 * torch.pi * pitch * t)


if __name__ == "__main__":
    torch.manual_seed(27)
    model = Separator(n_sources=2)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(4):
        opt.zero_grad()
        ratios = separation_step(model, tones(4, 2, 64))
        opt.step()
        print(step, [round(r, 2) for r in ratios])
