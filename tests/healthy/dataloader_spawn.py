"""Training from a DataLoader with a spawned worker that imports this file again."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        assert get_worker_info() is not None
        x = torch.tensor([index / 24.0, (index % 5) / 5.0])
        return x, x.pow(2).sum().unsqueeze(0)


def main():
    torch.manual_seed(42)
    loader = DataLoader(Squares(), batch_size=6, num_workers=1, multiprocessing_context="spawn")
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print("gradients", sum(p.grad.double().abs().sum() for p in model.parameters()).item().hex())
    print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())


if __name__ == "__main__":
    main()
