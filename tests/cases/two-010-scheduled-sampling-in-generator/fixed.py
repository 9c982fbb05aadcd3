import torch
from torch import nn


class NextFrame(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.enc = nn.Conv2d(1, channels, 3, padding=1)
        self.dec = nn.ConvTranspose2d(channels, 1, 3, padding=1)

    def forward(self, frame):
        z = torch.relu(self.enc(frame))
        return frame + self.dec(z)


def moving_blob(length=6, size=10):
    grid = torch.arange(size).float()
    frames = []
    for t in range(length):
        x = torch.exp(-0.5 * (grid - 2 - t) ** 2)
        frames.append(torch.outer(x, x))
    return torch.stack(frames)[:, None, None]


def feed(video, use_own):
    """Yields (input, target); the caller sends its prediction back in."""
    previous = video[0]
    for target in video[1:]:
        prediction = yield previous, target
        previous = prediction if use_own() else target


def run_epoch(model, opt, video, use_own):
    source = feed(video, use_own)
    frame, target = next(source)
    total = 0.0
    while True:
        pred = model(frame)
        loss = nn.functional.mse_loss(pred, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        try:
            frame, target = source.send(pred.detach())
        except StopIteration:
            return total


def main():
    torch.manual_seed(9)
    model = NextFrame()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    video = moving_blob()
    for epoch in range(4):
        probability = min(1.0, float(epoch))
        total = run_epoch(model, opt, video, lambda: torch.rand(()).item() < probability)
        print(f"epoch {epoch}: {total:.4f}")


if __name__ == "__main__":
    main()
