import torch
from torch import nn

from chunked import backward_in_chunks


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Conv1d(dim, dim, kernel_size=3, padding=2)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def hidden(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        x = torch.relu(self.mix(x))[..., : tokens.size(1)]
        return self.norm(x.transpose(1, 2))


class Trainer:
    def __init__(self, model, lr, n_chunks):
        self.model, self.n_chunks = model, n_chunks
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def step(self, tokens):
        self.opt.zero_grad()
        hidden = self.model.hidden(tokens[:, :-1]).flatten(0, 1)
        target = tokens[:, 1:].flatten()
        value = backward_in_chunks(self.model.head, hidden, target, self.n_chunks)
        self.opt.step()
        return value


def main():
    torch.manual_seed(28)
    trainer = Trainer(LanguageModel(vocab=60, dim=16), lr=2e-3, n_chunks=4)
    for it in range(4):
        print(it, trainer.step(torch.randint(0, 60, (4, 17))))


if __name__ == "__main__":
    main()
