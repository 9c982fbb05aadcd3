"""Frozen dataclass batches and typed outputs through a two-tower regression model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Batch:
    user: Tensor
    item: Tensor
    rating: Tensor

    def to(self, dtype: torch.dtype) -> Batch:
        return replace(self, rating=self.rating.to(dtype))

    def chunks(self, size: int) -> Iterator[Batch]:
        for parts in zip(*(getattr(self, f.name).split(size) for f in fields(self)), strict=True):
            yield Batch(*parts)


class Output(NamedTuple):
    score: Tensor
    loss: Tensor


class TwoTower(nn.Module):
    def __init__(self, users: int, items: int, dim: int = 6) -> None:
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> Output:
        score = torch.einsum("bd,bd->b", self.user(batch.user), self.item(batch.item)) + self.bias
        return Output(score, (score - batch.rating).square().mean())


def main() -> None:
    torch.manual_seed(46)
    data = Batch(
        torch.randint(0, 8, (64,)), torch.randint(0, 10, (64,)), torch.randn(64).double()
    ).to(torch.float32)
    model = TwoTower(8, 10)
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-2)
    for epoch in range(5):
        losses: list[float] = []
        for batch in data.chunks(16):
            output = model(batch)
            optimizer.zero_grad()
            output.loss.backward()
            optimizer.step()
            losses.append(output.loss.item())
        print(epoch, (sum(losses) / len(losses)).hex(), output.score.detach().sum().item().hex())
    print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())


if __name__ == "__main__":
    main()
