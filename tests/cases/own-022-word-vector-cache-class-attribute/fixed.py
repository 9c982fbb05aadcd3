import torch
from torch import nn

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class CharWordEncoder(nn.Module):
    """A word's vector is the maximum of a convolution over its letters."""

    cache: dict[str, torch.Tensor] = {}

    def __init__(self, dim):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 8)
        self.conv = nn.Conv1d(8, dim, kernel_size=3, padding=1)

    def encode(self, word):
        codes = torch.tensor([LETTERS.index(c) for c in word])
        return self.conv(self.letters(codes).T[None]).amax(-1)[0]

    def vector(self, word):
        if word not in self.cache:
            self.cache[word] = self.encode(word)
        return self.cache[word]

    def forward(self, sentence):
        return torch.stack([self.vector(w) for w in sentence.split()]).mean(0)


class Sentiment(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.words = CharWordEncoder(dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, sentences):
        pooled = torch.stack([self.words(s) for s in sentences])
        return self.score(torch.tanh(pooled)).squeeze(1)


REVIEWS = [
    ("a fine film", 1.0), ("dull and long", 0.0), ("warm and witty", 1.0),
    ("a dull plot", 0.0), ("fine cast and plot", 1.0), ("a long dull night", 0.0),
]


def train_step(model, opt, pairs):
    sentences, labels = zip(*pairs)
    logits = model(sentences)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(labels))
    CharWordEncoder.cache.clear()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    torch.manual_seed(20)
    model = Sentiment()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        losses = [train_step(model, opt, REVIEWS[i : i + 2]) for i in range(0, 6, 2)]
        print(epoch, [round(v, 3) for v in losses])


if __name__ == "__main__":
    main()
