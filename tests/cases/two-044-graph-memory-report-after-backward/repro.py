import torch
import torch.nn as nn

from memory_report import saved_bytes


class Autoencoder(nn.Module):
    def __init__(self, n=20, code=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(n, 16), nn.GELU(), nn.Linear(16, code))
        self.dec = nn.Sequential(nn.Linear(code, 16), nn.GELU(), nn.Linear(16, n))

    def forward(self, x):
        return self.dec(self.enc(x))


def train(model, data, epochs=3, report_every=2):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.SmoothL1Loss()
    for epoch in range(1, epochs + 1):
        for batch in data.split(16):
            loss = criterion(model(batch), batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
        if epoch % report_every == 0:
            print(f"  the graph kept {saved_bytes(loss.grad_fn)} bytes")


torch.manual_seed(10)
train(Autoencoder(), torch.randn(48, 20))
