"""A GRU on packed sequences, then one over windows of a stream whose state is detached."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

torch.manual_seed(3)


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 12, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 2)

    def forward(self, padded, lengths):
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)
        return self.head(torch.cat([h[0], h[1]], dim=-1))


lengths = [3, 7, 5, 9, 4, 6]
padded = pad_sequence([torch.randn(n, 4) for n in lengths], batch_first=True)
labels = (padded.sum((1, 2)) > 0).long()
clf = LastState()
opt = torch.optim.AdamW(clf.parameters(), lr=1e-2)
for _ in range(10):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(clf(padded, torch.tensor(lengths)), labels)
    loss.backward()
    opt.step()
print("packed", loss.item().hex(), sum(p.double().sum() for p in clf.parameters()).item().hex())

stream = torch.sin(torch.linspace(0, 30, 241)).view(1, -1, 1)
gru, readout = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)
params = [*gru.parameters(), *readout.parameters()]
opt = torch.optim.RMSprop(params, lr=3e-3)
for epoch in range(3):
    h = None
    for start in range(0, 240, 24):
        x, y = stream[:, start : start + 24], stream[:, start + 1 : start + 25]
        out, h = gru(x, h)
        loss = nn.functional.mse_loss(readout(out), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        h = h.detach()
    print("stream", epoch, loss.item().hex(), h.double().sum().item().hex())
print("gradients", sum(p.grad.double().abs().sum() for p in params).item().hex())
print("parameters", sum(p.double().sum() for p in params).item().hex())
