import torch
import torch.nn.functional as F
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.attn = nn.Linear(dim, 1)
        self.out = nn.Linear(dim, dim)

    def forward(self, ids):
        x = self.tok(ids)
        w = self.attn(x).softmax(dim=1)
        pooled = torch.einsum("btd,bto->bd", x, w)
        return F.normalize(self.out(pooled), dim=-1)


class ImageEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, 3, stride=2)

    def forward(self, img):
        return F.normalize(self.conv(img).relu().mean((2, 3)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, vocab=40, dim=12):
        super().__init__()
        self.text, self.image = TextEncoder(vocab, dim), ImageEncoder(dim)
        self.log_t = nn.Parameter(torch.tensor(1.0))

    def encode_text(self, ids):
        return self.text(ids)

    def encode_image(self, img):
        return self.image(img)


def contrastive(a, b, t):
    sim = t * a @ b.t()
    y = torch.arange(len(a))
    return (F.cross_entropy(sim, y) + F.cross_entropy(sim.t(), y)) / 2


def fit(model, loader, prompts, epochs, lr):
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    class_emb = model.encode_text(prompts)
    for epoch in range(epochs):
        for img, captions, y in loader:
            z = model.encode_image(img)
            cap = model.encode_text(captions)
            t = model.log_t.exp()
            loss = contrastive(z, cap, t) + F.cross_entropy(t * z @ class_emb.t(), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        sched.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = [(torch.randn(6, 3, 9, 9), torch.randint(0, 40, (6, 7)), torch.randint(0, 3, (6,))) for _ in range(3)]
    fit(TwoTower(), loader, torch.randint(0, 40, (3, 5)), epochs=2, lr=1e-3)
