"""A character-level LSTM language model trained by truncated back-propagation through time."""

import math

import torch
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the slow red cat. " * 8
VOCAB = sorted(set(TEXT))
BPTT = 20


class CharLM(nn.Module):
    def __init__(self, size, dim=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(size, dim)
        self.rnn = nn.LSTM(dim, dim, layers, dropout=0.1)
        self.decoder = nn.Linear(dim, size)

    def forward(self, tokens, hidden):
        out, hidden = self.rnn(self.embed(tokens), hidden)
        return self.decoder(out), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(2, batch, 32), weight.new_zeros(2, batch, 32)


def repackage_hidden(h):
    """Cut the hidden state from its history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(ids, batch):
    length = len(ids) // batch
    return ids[: length * batch].view(batch, length).t().contiguous()


def main():
    torch.manual_seed(1111)
    data = batchify(torch.tensor([VOCAB.index(c) for c in TEXT]), 6)
    model = CharLM(len(VOCAB))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        model.train()
        hidden, total, count = model.init_hidden(6), 0.0, 0
        for i in range(0, data.size(0) - 1, BPTT):
            seq = min(BPTT, data.size(0) - 1 - i)
            hidden = repackage_hidden(hidden)
            optimizer.zero_grad()
            output, hidden = model(data[i : i + seq], hidden)
            loss = nn.functional.cross_entropy(
                output.flatten(0, 1), data[i + 1 : i + 1 + seq].flatten()
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} ppl {math.exp(total / count).hex()}")

    model.eval()
    token, hidden, out = data[:1, :1], model.init_hidden(1), []
    with torch.no_grad():
        for _ in range(12):
            logits, hidden = model(token, hidden)
            token = logits.argmax(-1)
            out.append(VOCAB[token.item()])
    print(repr("".join(out)), sum(p.double().sum() for p in model.parameters()).item().hex())


if __name__ == "__main__":
    main()
