"""A variational autoencoder with the reparameterisation trick, an annealed KL term and sampling."""

import hashlib

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, inputs=36, hidden=32, latent=4):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, inputs)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 36))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon, x, mu, logvar, beta):
    bce = F.binary_cross_entropy(recon, x.view(-1, 36), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + beta * kld, bce, kld


torch.manual_seed(9)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
data = (torch.rand(64, 1, 6, 6) < torch.linspace(0.1, 0.9, 6)).float()
for epoch in range(8):
    model.train()
    train_loss = 0.0
    for batch in data.split(16):
        optimizer.zero_grad()
        recon, mu, logvar = model(batch)
        loss, bce, kld = loss_function(recon, batch, mu, logvar, beta=min(1.0, epoch / 5))
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    print(epoch, (train_loss / len(data)).hex(), bce.item().hex(), kld.item().hex())

with torch.no_grad():
    sample = model.decode(torch.randn(4, 4))
print("sample", hashlib.sha256(sample.numpy().tobytes()).hexdigest()[:16])
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
print("parameters", hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16])
