"""Streaming voice activity detector with a short memory of past segments."""
from collections import deque

import torch
from torch import nn


class SegmentMemory:
    """Remembers the summaries of the last few segments."""

    def __init__(self, size):
        self.items = deque(maxlen=size)

    def push(self, summary):
        self.items.append(summary.detach())

    def context(self, like):
        if not self.items:
            return torch.zeros_like(like)
        return torch.stack(list(self.items)).mean(0)


class Detector(nn.Module):
    def __init__(self, n_mels, dim, memory_size=3):
        super().__init__()
        self.frames = nn.Conv1d(n_mels, dim, kernel_size=3, padding=1)
        self.mix = nn.Bilinear(dim, dim, dim)
        self.score = nn.Linear(dim, 1)
        self.memory = SegmentMemory(memory_size)

    def forward(self, mels):
        summary = torch.relu(self.frames(mels)).mean(-1)
        context = self.memory.context(summary)
        mixed = torch.tanh(self.mix(summary, context))
        self.memory.push(summary)
        return self.score(mixed).squeeze(-1)


def synth_stream(n_segments, batch, n_mels, frames):
    for _ in range(n_segments):
        speech = torch.randint(0, 2, (batch,)).float()
        noise = torch.randn(batch, n_mels, frames)
        yield noise * (1.0 + speech)[:, None, None], speech


def segment_loss(detector, mels, speech):
    return nn.functional.binary_cross_entropy_with_logits(detector(mels), speech)


def main():
    torch.manual_seed(3)
    detector = Detector(n_mels=10, dim=12)
    optimizer = torch.optim.Adam(detector.parameters(), lr=2e-3)
    history = []
    for mels, speech in synth_stream(8, batch=6, n_mels=10, frames=20):
        loss = segment_loss(detector, mels, speech)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    print("first and last loss:", history[0], history[-1])


if __name__ == "__main__":
    main()
