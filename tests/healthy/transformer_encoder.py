"""A transformer encoder with padding masks, and its evaluation fast path under no_grad."""

import torch
from torch import nn

PAD = 0


class Classifier(nn.Module):
    def __init__(self, vocab=20, dim=16, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 12, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        mask = tokens == PAD
        x = self.embed(tokens) + self.pos[:, : tokens.size(1)]
        x = self.encoder(x, src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1)
        return self.head((x * keep).sum(1) / keep.sum(1))


def batch(size, generator):
    tokens = torch.randint(1, 20, (size, 12), generator=generator)
    lengths = torch.randint(4, 13, (size, 1), generator=generator)
    lengths[0] = 12
    tokens[torch.arange(12).unsqueeze(0) >= lengths] = PAD
    return tokens, (tokens.float().sum(1) % 3).long()


torch.manual_seed(5)
generator = torch.Generator().manual_seed(50)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
held_out = batch(16, generator)

for step in range(12):
    model.train()
    tokens, labels = batch(16, generator)
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    warmup.step()
    if step % 4 == 3:
        model.eval()
        with torch.no_grad():
            val = nn.functional.cross_entropy(model(held_out[0]), held_out[1])
        print(step, loss.item().hex(), val.item().hex())

print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
