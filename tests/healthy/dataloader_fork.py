"""Training from a DataLoader with forked workers, a custom collate function and augmentation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = 6 + index % 5
        phase = torch.rand(1, generator=generator)
        wave = torch.sin(torch.arange(length) * (1 + index % 3) + phase)
        return wave + 0.05 * torch.randn(length, generator=generator), index % 3


def collate(samples):
    waves = nn.utils.rnn.pad_sequence([w for w, _ in samples], batch_first=True)
    waves = nn.functional.pad(waves, (0, 10 - waves.size(1)))
    return {"wave": waves, "label": torch.tensor([label for _, label in samples])}


if __name__ == "__main__":
    torch.manual_seed(40)
    loader = DataLoader(
        Waves(),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        collate_fn=collate,
        multiprocessing_context="fork",
        persistent_workers=True,
        generator=torch.Generator().manual_seed(41),
    )
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        total = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["wave"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch["label"])
        print(epoch, (total / len(loader.dataset)).hex())
    print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())
