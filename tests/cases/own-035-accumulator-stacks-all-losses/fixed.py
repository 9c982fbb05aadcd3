import torch
from torch import nn

from accumulation_fixed import Accumulator


class EventTagger(nn.Module):
    """Multi-label tags for a clip from its spectrogram."""

    def __init__(self, bands, tags):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, kernel_size=3, stride=2)
        self.out = nn.Linear(6, tags)

    def forward(self, spectrogram):
        maps = torch.relu(self.conv(spectrogram[:, None]))
        return self.out(maps.mean(dim=(2, 3)))


def clip_loss(model, clip, tags):
    return nn.functional.multilabel_soft_margin_loss(model(clip), tags)


def make_clips(n, batch, bands, frames, tags):
    for _ in range(n):
        present = torch.randint(0, 2, (batch, tags)).float()
        yield torch.randn(batch, bands, frames) + present.mean(1)[:, None, None], present


def main():
    torch.manual_seed(33)
    model = EventTagger(bands=16, tags=4)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    accumulator = Accumulator(opt, every=4)
    for clip, tags in make_clips(8, 3, 16, 20, 4):
        accumulator.add(clip_loss(model, clip, tags))


if __name__ == "__main__":
    main()
