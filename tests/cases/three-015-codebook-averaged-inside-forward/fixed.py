import torch
from torch import nn


class SoftQuantizer(nn.Module):
    def __init__(self, codes, dim, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(codes, dim))

    @torch.no_grad()
    def refresh(self, z, weights):
        mass = weights.sum(0).unsqueeze(1) + 1e-3
        self.codebook.mul_(self.decay).add_(weights.t() @ z / mass, alpha=1 - self.decay)

    def forward(self, z):
        weights = torch.softmax(z @ self.codebook.clone().t(), dim=1)
        if self.training:
            self.refresh(z, weights)
        return z + (weights @ self.codebook - z).detach(), weights


class Tokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Conv1d(1, 4, 8, stride=8)
        self.vq = SoftQuantizer(6, 4)
        self.dec = nn.ConvTranspose1d(4, 1, 8, stride=8)

    def forward(self, wave):
        z = self.enc(wave).transpose(1, 2)
        q, weights = self.vq(z.reshape(-1, 4))
        entropy = -(weights * weights.clamp_min(1e-9).log()).sum(1).mean()
        return self.dec(q.view_as(z).transpose(1, 2)), entropy


torch.manual_seed(23)
model = Tokenizer()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for it in range(3):
    wave = torch.sin(torch.rand(4, 1, 1) * 20 * torch.linspace(0, 1, 64))
    out, entropy = model(wave)
    loss = (out - wave).pow(2).mean() + 0.01 * entropy
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
