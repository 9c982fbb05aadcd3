import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, n_in, dim):
        super().__init__()
        self.first, self.second = nn.Linear(n_in, 16), nn.Linear(16, dim)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Pair(nn.Module):
    """A user tower and an item tower, trained side by side."""

    def __init__(self, n_user, n_item, dim):
        super().__init__()
        self.user, self.item = Tower(n_user, dim), Tower(n_item, dim)

    def forward(self, user_x, item_x):
        return self.user(user_x), self.item(item_x)


def whitening_loss(z):
    """Every dimension with unit variance and no correlation between them."""
    z = z - z.mean(0)
    cov = z.T @ z / (len(z) - 1)
    return (cov - torch.eye(z.size(1))).square().sum()


class SideBySide:
    def __init__(self, pair):
        self.pair = torch.compile(pair, backend="aot_eager")
        self.opt_user = torch.optim.SGD(pair.user.parameters(), lr=1e-2)
        self.opt_item = torch.optim.SGD(pair.item.parameters(), lr=1e-2)

    def losses(self, user_x, item_x):
        users, items = self.pair(user_x, item_x)
        return whitening_loss(users), whitening_loss(items)

    def step(self, user_x, item_x):
        left, right = self.losses(user_x, item_x)
        self.opt_user.zero_grad()
        self.opt_item.zero_grad()
        left.backward()
        right.backward()
        self.opt_user.step()
        self.opt_item.step()
        return left.item(), right.item()


def main():
    torch.manual_seed(43)
    trainer = SideBySide(Pair(6, 9, 4))
    for step in range(3):
        print(step, trainer.step(torch.randn(24, 6), torch.randn(24, 9)))


if __name__ == "__main__":
    main()
