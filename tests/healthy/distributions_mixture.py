"""A mixture density network and a variational posterior with torch.distributions."""

import torch
from torch import nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence


class MDN(nn.Module):
    def __init__(self, components=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 16), nn.Tanh())
        self.logits = nn.Linear(16, components)
        self.loc = nn.Linear(16, components)
        self.scale = nn.Linear(16, components)

    def forward(self, x):
        h = self.body(x)
        scale = nn.functional.softplus(self.scale(h)) + 1e-3
        return MixtureSameFamily(Categorical(logits=self.logits(h)), Normal(self.loc(h), scale))


torch.manual_seed(56)
t = torch.rand(60, 1)
x = t + 0.3 * torch.sin(6.28 * t) + 0.05 * torch.randn(60, 1)
mdn = MDN()
optimizer = torch.optim.Adam(mdn.parameters(), lr=2e-2)
for step in range(15):
    loss = -mdn(x).log_prob(t.squeeze(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print("mdn", step, loss.item().hex())
with torch.no_grad():
    print("sample", mdn(x[:5]).sample().double().sum().item().hex())

loc, log_scale = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.full((4,), -1.0))
prior = Independent(Normal(torch.zeros(4), torch.ones(4)), 1)
features, target = torch.randn(30, 4), torch.randn(30)
optimizer = torch.optim.Adam([loc, log_scale], lr=5e-2)
for step in range(15):
    posterior = Independent(Normal(loc, log_scale.exp()), 1)
    weights = posterior.rsample((8,))
    likelihood = Normal(weights @ features.t(), 0.5).log_prob(target).sum(1).mean()
    loss = kl_divergence(posterior, prior) - likelihood
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print("posterior", step, loss.item().hex())
params = [*mdn.parameters(), loc, log_scale]
print("gradients", sum(p.grad.double().abs().sum() for p in params).item().hex())
print("parameters", sum(p.double().sum() for p in params).item().hex())
