import torch
from torch import nn


class PlainLSTM(nn.Module):
    def __init__(self, inputs, hidden, forget_bias=1.0):
        super().__init__()
        self.hidden = hidden
        self.forget_bias = forget_bias
        self.weight = nn.Parameter(torch.randn(inputs + hidden, 4 * hidden) * 0.1)
        self.bias = nn.Parameter(torch.zeros(4 * hidden))

    def cell(self, x, h, c):
        gates = torch.cat([x, h], dim=1) @ self.weight + self.bias
        i, f, g, o = gates.split(self.hidden, dim=1)
        f = f + self.forget_bias
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, series):
        h = c = series.new_zeros(series.shape[1], self.hidden)
        for x in series:
            h, c = self.cell(x, h, c)
        return h


torch.manual_seed(2)
lstm, readout = PlainLSTM(3, 8), nn.Linear(8, 1)
opt = torch.optim.Adam([*lstm.parameters(), *readout.parameters()], lr=0.01)
for epoch in range(2):
    glucose = torch.randn(10, 5, 3).cumsum(0)
    target = glucose[-1, :, :1] * 0.5
    loss = (readout(lstm(glucose[:-1])) - target).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
