"""A stateful recurrent module that keeps its hidden state and cuts it with detach_."""

import torch
from torch import nn


class StatefulRNN(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.cell = nn.RNNCell(inputs, hidden)
        self.out = nn.Linear(hidden, inputs)
        self.h = None

    def reset(self):
        self.h = None

    def forward(self, x):
        if self.h is None:
            self.h = x.new_zeros(x.size(0), self.cell.hidden_size)
        self.h = self.cell(x, self.h)
        return self.out(self.h)


torch.manual_seed(4)
model = StatefulRNN(3, 10)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
series = torch.cumsum(0.1 * torch.randn(61, 5, 3), dim=0)

for epoch in range(3):
    model.reset()
    loss, losses = 0, []
    for t in range(60):
        loss = loss + (model(series[t]) - series[t + 1]).pow(2).mean()
        if (t + 1) % 6 == 0:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            model.h.detach_()
            loss = 0
    print(epoch, (sum(losses) / len(losses)).hex(), model.h.requires_grad)

for name, p in model.named_parameters():
    print(name, p.double().sum().item().hex(), p.grad.double().sum().item().hex())
