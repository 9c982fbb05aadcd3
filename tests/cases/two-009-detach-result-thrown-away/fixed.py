import string

import torch
import torch.nn as nn

# names generation, truncated every CHUNK characters
all_letters = string.ascii_lowercase + " "
n_letters = len(all_letters)
text = "alice bob carol dave erin frank grace heidi ivan judy mallory niaj olivia peggy"
CHUNK = 8


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.dropout = nn.Dropout(0.1)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        input_combined = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.i2h(input_combined))
        output = self.dropout(self.h2o(hidden))
        return self.softmax(output), hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for i, ch in enumerate(line):
        tensor[i][0][all_letters.index(ch)] = 1
    return tensor


torch.manual_seed(8)
rnn = RNN(n_letters, 32, n_letters)
criterion = nn.NLLLoss()
optimizer = torch.optim.SGD(rnn.parameters(), lr=0.05)

inputs = lineToTensor(text[:-1])
targets = torch.tensor([all_letters.index(c) for c in text[1:]])
hidden = rnn.initHidden()
loss = 0
for t in range(inputs.size(0)):
    output, hidden = rnn(inputs[t], hidden)
    loss = loss + criterion(output, targets[t : t + 1])
    if (t + 1) % CHUNK == 0:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(t + 1, loss.item() / CHUNK)
        hidden = hidden.detach()
        loss = 0
