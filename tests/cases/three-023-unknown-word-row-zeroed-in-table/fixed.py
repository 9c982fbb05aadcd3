import torch
from torch import nn


class CharTagger(nn.Module):
    UNK = 0

    def __init__(self, alphabet, tags, dim=10):
        super().__init__()
        self.index = {c: i + 1 for i, c in enumerate(alphabet)}
        self.table = nn.Parameter(torch.randn(len(alphabet) + 1, dim) / dim**0.5)
        with torch.no_grad():
            self.table[self.UNK] = 0.0
        self.rnn = nn.GRU(dim, 12, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(24, tags)

    def ids(self, word):
        return torch.tensor([self.index.get(c, self.UNK) for c in word])

    def forward(self, word):
        states, _ = self.rnn(self.table[self.ids(word)].unsqueeze(0))
        return self.tag(states.squeeze(0))


def vowels(word):
    return torch.tensor([int(c in "aeiou") for c in word])


torch.manual_seed(14)
tagger = CharTagger("abcdefghijklmnopqrstuvwxy", tags=2)
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.2)
for epoch in range(2):
    for word in ("harbour", "zigzag", "quay"):
        loss = nn.functional.cross_entropy(tagger(word), vowels(word))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
