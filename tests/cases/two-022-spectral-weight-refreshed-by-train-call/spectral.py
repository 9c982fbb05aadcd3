import torch
from torch import nn
import torch.nn.functional as F


class SNLinear(nn.Linear):
    """Linear layer with unit spectral norm (power iteration)."""

    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out)
        self.register_buffer("u", F.normalize(torch.randn(n_out), dim=0))
        self.refresh()

    def refresh(self):
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))
        sigma = self.u.clone() @ self.weight @ v
        self.w_bar = self.weight / sigma

    def train(self, mode=True):
        super().train(mode)
        self.refresh()
        return self

    def forward(self, x):
        return F.linear(x, self.w_bar, self.bias)
