"""Intrinsic curiosity module (Pathak et al.), much reduced."""
import torch
from torch import nn
from torch.nn import functional as F


class FeatureNet(nn.Module):
    def __init__(self, n_obs, dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(n_obs, 32), nn.Linear(32, dim)

    def forward(self, obs):
        return self.fc2(F.elu(self.fc1(obs)))


class ICM(nn.Module):
    def __init__(self, n_obs, dim, n_actions, lr=1e-3):
        super().__init__()
        self.n_actions = n_actions
        self.phi = FeatureNet(n_obs, dim)
        self.inverse = nn.Sequential(nn.Linear(2 * dim, 32), nn.ELU(), nn.Linear(32, n_actions))
        self.forward_model = nn.Sequential(nn.Linear(dim + n_actions, 32), nn.ELU(), nn.Linear(32, dim))
        self.opt = torch.optim.Adam(self.parameters(), lr=lr)

    def predict(self, phi_s, action):
        one_hot = F.one_hot(action, self.n_actions).float()
        return self.forward_model(torch.cat([phi_s, one_hot], dim=1))

    @torch.no_grad()
    def bonus(self, s, s_next, action):
        return 0.5 * (self.predict(self.phi(s), action) - self.phi(s_next)).square().sum(1)

    def minimise(self, loss):
        loss.backward()
        return loss.item()

    def learn(self, s, s_next, action):
        phi_s, phi_next = self.phi(s), self.phi(s_next)
        logits = self.inverse(torch.cat([phi_s, phi_next], dim=1))
        inverse_loss = F.cross_entropy(logits, action)
        forward_loss = 0.5 * (self.predict(phi_s, action) - phi_next).square().sum(1).mean()
        self.opt.zero_grad()
        values = self.minimise(inverse_loss + forward_loss)
        self.opt.step()
        return values
