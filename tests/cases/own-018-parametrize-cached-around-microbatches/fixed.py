import torch
from torch import nn
from torch.nn.utils import parametrize


class Rotation(nn.Module):
    """Turns a free square matrix into a rotation."""

    def forward(self, raw):
        upper = raw.triu(diagonal=1)
        return torch.matrix_exp(upper - upper.T)


class RotationFlow(nn.Module):
    """A volume-preserving map: one rotation used at every depth, with shifts between."""

    def __init__(self, dim, depth):
        super().__init__()
        self.mix = nn.Linear(dim, dim, bias=False)
        parametrize.register_parametrization(self.mix, "weight", Rotation())
        self.shifts = nn.ModuleList(nn.Linear(dim // 2, dim - dim // 2) for _ in range(depth))

    def forward(self, x):
        for shift in self.shifts:
            left, right = self.mix(x).tensor_split([x.size(-1) // 2], dim=-1)
            x = torch.cat([left, right + torch.tanh(shift(left))], dim=-1)
        return x


def negative_log_density(flow, x):
    z = flow(x)
    return 0.5 * z.square().sum(-1).mean()


def accumulate(flow, x, micro_batch):
    total = 0.0
    for part in x.split(micro_batch):
        with parametrize.cached():
            loss = negative_log_density(flow, part) * len(part) / len(x)
            loss.backward()
            total += loss.item()
    return total


def main():
    torch.manual_seed(16)
    flow = RotationFlow(dim=6, depth=3)
    opt = torch.optim.SGD(flow.parameters(), lr=0.05)
    base = torch.randn(6, 6)
    for step in range(4):
        opt.zero_grad()
        value = accumulate(flow, torch.randn(24, 6) @ base, micro_batch=8)
        opt.step()
        print(step, round(value, 4))


if __name__ == "__main__":
    main()
