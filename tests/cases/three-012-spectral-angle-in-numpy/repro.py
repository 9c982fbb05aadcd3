import torch
from torch import nn

from metrics import spectral_angle


class Unmixer(nn.Module):
    """Autoencoder whose code is a vector of mineral abundances."""

    def __init__(self, bands, minerals):
        super().__init__()
        self.encode = nn.Linear(bands, minerals)
        self.spectra = nn.Linear(minerals, bands, bias=False)

    def forward(self, pixels):
        return self.spectra(torch.softmax(self.encode(pixels), dim=-1))


torch.manual_seed(4)
bands, minerals = 12, 3
library = torch.rand(minerals, bands)
pixels = torch.distributions.Dirichlet(torch.ones(minerals)).sample((40,)) @ library
model = Unmixer(bands, minerals)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=1e-4)
for epoch in range(3):
    optimizer.zero_grad()
    reconstruction = model(pixels)
    loss = spectral_angle(reconstruction, pixels)
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
