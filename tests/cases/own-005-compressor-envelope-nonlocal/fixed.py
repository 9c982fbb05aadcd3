"""Fit a differentiable compressor to a reference recording, block by block."""
import torch
from torch import nn


class CompressorParams(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.release = nn.Parameter(torch.full((channels,), 1.5))
        self.threshold = nn.Parameter(torch.full((channels,), 0.3))
        self.slope = nn.Parameter(torch.full((channels,), 0.5))


def make_envelope(params, batch, channels):
    level = torch.zeros(batch, channels)

    def follow(block):
        nonlocal level
        level = level.detach()
        keep = torch.sigmoid(params.release)
        track = []
        for frame in block.unbind(-1):
            level = torch.maximum(frame.abs(), keep * level)
            track.append(level)
        return torch.stack(track, dim=-1)

    return follow


def compress(params, envelope, block):
    level = envelope(block)
    over = torch.relu(level - params.threshold[:, None])
    return block / (1.0 + params.slope[:, None] * over)


def reference(block):
    return block / (1.0 + 0.8 * (block.abs() - 0.2).clamp(min=0))


def main(n_blocks=6, batch=3, channels=2, length=24):
    torch.manual_seed(0)
    params = CompressorParams(channels)
    envelope = make_envelope(params, batch, channels)
    opt = torch.optim.SGD(params.parameters(), lr=0.5)
    audio = torch.randn(batch, channels, n_blocks * length)
    for i, block in enumerate(audio.split(length, dim=-1)):
        out = compress(params, envelope, block)
        loss = nn.functional.l1_loss(out, reference(block))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"block {i}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
