import torch
from torch import nn


class RadialBasis(nn.Module):
    def __init__(self, n=8, cutoff=3.0):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.3, cutoff, n))

    def forward(self, d):
        return torch.exp(-4.0 * (d.unsqueeze(-1) - self.centres).square())


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter = nn.Linear(n_rbf, dim)
        self.update = nn.Sequential(nn.Linear(dim, dim), nn.Softplus(), nn.Linear(dim, dim))

    def forward(self, h, rbf, mask):
        w = self.filter(rbf) * mask.unsqueeze(-1)
        m = torch.einsum("bijd,bjd->bid", w, h)
        return h + self.update(m)


class SchNetLike(nn.Module):
    def __init__(self, n_types=3, dim=12, depth=2):
        super().__init__()
        self.emb = nn.Embedding(n_types, dim)
        self.rbf = RadialBasis()
        self.interactions = nn.ModuleList([Interaction(dim, 8) for _ in range(depth)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.Softplus(), nn.Linear(dim, 1))

    def forward(self, z, pos):
        n = z.size(1)
        mask = 1.0 - torch.eye(n)
        diff = pos.unsqueeze(2) - pos.unsqueeze(1)
        d = (diff.square().sum(-1) + torch.eye(n)).sqrt()
        h, rbf = self.emb(z), self.rbf(d)
        for interaction in self.interactions:
            h = interaction(h, rbf, mask)
        return self.readout(h).sum((1, 2))


def energy_and_forces(model, z, pos):
    pos = pos.clone().requires_grad_(True)
    energy = model(z, pos)
    forces = -torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]
    return energy, forces


def molecules(n_batches, batch=4, atoms=5):
    for _ in range(n_batches):
        z, pos = torch.randint(0, 3, (batch, atoms)), torch.randn(batch, atoms, 3)
        yield z, pos, pos.square().sum((1, 2)), -2 * pos


def train(epochs=2, rho=0.1):
    torch.manual_seed(9)
    model = SchNetLike()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
    for epoch in range(epochs):
        for z, pos, e_true, f_true in molecules(3):
            e, f = energy_and_forces(model, z, pos)
            loss = rho * (e - e_true).square().mean() + (f - f_true).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        plateau.step(loss.detach())
        print(epoch, loss.item())


train()
