import functools
import time

import torch
import torch.nn.functional as F
from torch import nn

TIMES: dict[str, float] = {}


def timed(function):
    """Add up the seconds spent in a function."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent = time.perf_counter() - start
            TIMES[function.__name__] = TIMES.get(function.__name__, 0.0) + spent

    return wrapper


class TwoTowers(nn.Module):
    def __init__(self, pixels, vocab, dim):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(pixels, 32), nn.GELU(), nn.Linear(32, dim))
        self.text = nn.EmbeddingBag(vocab, dim)
        self.log_scale = nn.Parameter(torch.tensor(1.0))

    @timed
    def similarity(self, pictures, captions):
        image = F.normalize(self.image(pictures), dim=-1)
        text = F.normalize(self.text(captions), dim=-1)
        return self.log_scale.exp() * image @ text.T


@timed
def backprop(loss):
    loss.backward()
    return loss.item()


def train_batch(model, pictures, captions):
    logits = model.similarity(pictures, captions)
    pairs = torch.arange(len(logits))
    to_text = backprop(F.cross_entropy(logits, pairs))
    to_image = backprop(F.cross_entropy(logits.T, pairs))
    return 0.5 * (to_text + to_image)


def main(steps=4, batch=10):
    torch.manual_seed(24)
    model = TwoTowers(pixels=20, vocab=50, dim=8)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        opt.zero_grad()
        value = train_batch(model, torch.rand(batch, 20), torch.randint(0, 50, (batch, 6)))
        opt.step()
        print(step, round(value, 4))
    print(sorted(TIMES))


if __name__ == "__main__":
    main()
