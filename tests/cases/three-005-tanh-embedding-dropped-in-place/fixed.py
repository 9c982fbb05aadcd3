import torch
from torch import nn


class MoleculeTower(nn.Module):
    def __init__(self, atoms, width, p):
        super().__init__()
        self.embed = nn.EmbeddingBag(atoms, width, mode="sum")
        self.mix = nn.Linear(width, width)
        self.drop = nn.Dropout(p)

    def forward(self, atom_ids, offsets):
        h = torch.tanh(self.mix(self.embed(atom_ids, offsets)))
        h = self.drop(h)
        return nn.functional.normalize(h, dim=-1)


class Affinity(nn.Module):
    def __init__(self):
        super().__init__()
        self.ligand = MoleculeTower(16, 20, 0.3)
        self.bias = nn.Parameter(torch.tensor(0.0))

    def similarity(self, left, right):
        return (self.ligand(*left) * self.ligand(*right)).sum(-1) + self.bias


def random_molecules(count):
    lengths = torch.randint(4, 10, (count,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    return torch.randint(0, 16, (int(lengths.sum()),)), offsets


torch.manual_seed(5)
model = Affinity()
opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
for step in range(2):
    left, right = random_molecules(7), random_molecules(7)
    affinity = torch.rand(7)
    error = nn.functional.smooth_l1_loss(model.similarity(left, right), affinity)
    opt.zero_grad()
    error.backward()
    opt.step()
    print(step, error.item())
