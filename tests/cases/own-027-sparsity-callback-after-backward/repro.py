import torch
from torch import nn

from engine import Engine
from penalties import SparseActivations


class SparseAutoencoder(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.encode = nn.Linear(dim, hidden)
        self.decode = nn.Linear(hidden, dim)

    def forward(self, batch):
        hidden = torch.sigmoid(self.encode(batch))
        loss = nn.functional.mse_loss(self.decode(hidden), batch)
        return {"hidden": hidden, "loss": loss}


def patches(n, batch, dim):
    basis = torch.randn(4, dim)
    return [torch.randn(batch, 4) @ basis for _ in range(n)]


def main():
    torch.manual_seed(25)
    model = SparseAutoencoder(dim=16, hidden=24)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    Engine(model, optimizer, [SparseActivations()]).run(patches(5, 20, 16))


if __name__ == "__main__":
    main()
