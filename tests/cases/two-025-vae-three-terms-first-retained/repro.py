import torch
from torch import nn


class SequenceVAE(nn.Module):
    def __init__(self, n=6, h=16, z=4):
        super().__init__()
        self.encoder = nn.GRU(n, h, batch_first=True)
        self.stats = nn.Linear(h, 2 * z)
        self.decoder = nn.Sequential(nn.Linear(z, h), nn.Tanh(), nn.Linear(h, n))

    def forward(self, x):
        out, _ = self.encoder(x)
        mu, logvar = self.stats(out).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return {
            "rec": (self.decoder(z) - x).square().mean(),
            "kl": 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(-1).mean(),
            "smooth": (mu[:, 1:] - mu[:, :-1]).square().sum(-1).mean(),
        }


class Trainer:
    weights = {"rec": 1.0, "kl": 0.05, "smooth": 0.1}

    def __init__(self, model, lr=3e-3):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.step_count = 0

    def _accumulate(self, loss, keep):
        loss.backward(retain_graph=keep)
        return loss.item()

    def train_step(self, x):
        losses = self.model(x)
        self.optimizer.zero_grad()
        log = {}
        for i, (name, value) in enumerate(losses.items()):
            log[name] = self._accumulate(self.weights[name] * value, keep=i == 0)
        self.optimizer.step()
        self.step_count += 1
        return log

    def fit(self, batches):
        for x in batches:
            log = self.train_step(x)
            print(self.step_count, {k: round(v, 4) for k, v in log.items()})


torch.manual_seed(1)
t = torch.linspace(0, 3, 12)[:, None]
waves = [torch.sin(t * torch.rand(8, 1, 6) * 3) for _ in range(4)]
Trainer(SequenceVAE()).fit(waves)
