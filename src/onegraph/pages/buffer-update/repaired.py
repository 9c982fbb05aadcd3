import torch
from torch import nn


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(16, 4))

    def forward(self, z):
        distance = torch.cdist(z, self.codes.clone())
        nearest = distance.argmin(dim=1)
        self.codes[nearest] = 0.9 * self.codes[nearest] + 0.1 * z.detach()
        return distance.min(dim=1).values.square().mean()


torch.manual_seed(0)
encoder, decoder, codebook = nn.Linear(8, 4), nn.Linear(4, 8), Codebook()
weights = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)
for step in range(3):
    x = torch.randn(32, 8)
    z = encoder(x)
    loss = nn.functional.mse_loss(decoder(z), x) + codebook(z)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
