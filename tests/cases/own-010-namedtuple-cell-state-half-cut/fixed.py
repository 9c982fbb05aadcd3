from typing import NamedTuple

import torch
from torch import Tensor, nn


class State(NamedTuple):
    h: Tensor
    c: Tensor


def initial(batch: int, width: int) -> State:
    return State(torch.zeros(batch, width), torch.zeros(batch, width))


def cut(state: State) -> State:
    """Truncate backpropagation here."""
    return state._replace(h=state.h.detach(), c=state.c.detach())


class CharModel(nn.Module):
    def __init__(self, vocab: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.cell = nn.LSTMCell(width, width)
        self.decode = nn.Linear(width, vocab)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = self.cell(self.embed(token), (state.h, state.c))
        return self.decode(h), State(h, c)

    def window(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        losses = []
        for now, after in zip(tokens[:-1], tokens[1:]):
            logits, state = self.step(now, state)
            losses.append(nn.functional.cross_entropy(logits, after))
        return torch.stack(losses).mean(), state


def corpus(length: int, batch: int, vocab: int) -> Tensor:
    start = torch.randint(0, vocab, (batch,))
    return (start + torch.arange(length)[:, None] * 3) % vocab


def train(vocab: int = 11, batch: int = 4, bptt: int = 8) -> None:
    torch.manual_seed(4)
    model = CharModel(vocab, 16)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    state = initial(batch, 16)
    for tokens in corpus(64, batch, vocab).split(bptt):
        loss, state = model.window(tokens, cut(state))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{loss.item():.3f}")


if __name__ == "__main__":
    train()
