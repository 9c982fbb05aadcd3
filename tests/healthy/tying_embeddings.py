"""A language model whose output layer shares the weight of its embedding."""

import torch
from torch import nn


class TiedLM(nn.Module):
    def __init__(self, vocab=15, dim=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.Linear(dim, vocab)
        self.decoder.weight = self.embed.weight

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.decoder(h)


torch.manual_seed(33)
model = TiedLM()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(15):
    ids = (torch.randint(0, 15, (10, 1)) + 4 * torch.arange(9)) % 15
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print(step, loss.item().hex(), model.embed.weight.grad.double().sum().item().hex())
print("tied", model.decoder.weight is model.embed.weight, len(list(model.parameters())))
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
