"""A language model with carried state, trained by truncated back-propagation.

It reads the source of a module of Python's library, many passages side by side and each as long as
it is. A window's backward ends where the window began; the state goes on, detached. Passages that
have ended keep their state and count no more, and windows add up to the mean over all characters.
"""

import textwrap
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from onegraph.lifetime import detach, windows

PASSAGES, WINDOW, EPOCHS = 16, 25, 5


class LanguageModel(nn.Module):
    def __init__(self, characters, width=64):
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.lstm = nn.LSTM(width, width)
        self.out = nn.Linear(width, characters)

    def forward(self, x, state):
        hidden, state = self.lstm(self.embedding(x), state)
        return self.out(hidden), state

    def start(self, batch):
        return tuple(torch.zeros(1, batch, self.lstm.hidden_size) for _ in range(2))


def make_passages(text):
    """(T, B) characters as numbers, padded, and how long each passage is; paragraphs stay whole."""
    number = {character: k for k, character in enumerate(sorted(set(text)))}
    passages = [""]
    for paragraph in text.split("\n\n"):
        if len(passages[-1]) > len(text) // PASSAGES:
            passages.append("")
        passages[-1] += paragraph + "\n\n"
    coded = [torch.tensor([number[c] for c in passage if c in number]) for passage in passages]
    return pad_sequence(coded), torch.tensor([len(one) for one in coded]), len(number)


torch.manual_seed(0)
text = Path(textwrap.__file__).read_text(encoding="utf-8")
characters, lengths, kinds = make_passages(text)
inputs, targets = characters[:-1], characters[1:]
model = LanguageModel(kinds)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
print(f"{len(lengths)} passages of {lengths.min()} to {lengths.max()} characters")

for epoch in range(EPOCHS):
    total, state = 0.0, model.start(len(lengths))
    for window in windows((inputs, targets), WINDOW, lengths=lengths - 1):
        x, y = window.data
        scores, new = model(x, state)
        loss = window.weigh(F.cross_entropy(scores.transpose(1, 2), y, reduction="none"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        state = detach(window.freeze(new, state, batch=1))
    print(f"epoch {epoch}  loss {total:.4f}")
