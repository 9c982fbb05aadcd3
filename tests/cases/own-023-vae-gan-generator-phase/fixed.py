import torch
from torch.nn.functional import binary_cross_entropy as bce
from torch.nn.functional import softplus

from nets import VAE, make_critic


class VAEGAN:
    def __init__(self, dim, latent):
        self.vae, self.critic = VAE(dim, latent), make_critic(dim)
        self.opt_vae = torch.optim.Adam(self.vae.parameters(), lr=1e-3)
        self.opt_critic = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def autoencoder_phase(self, x, x_rec, kl):
        loss = bce(x_rec, x) + 0.01 * kl
        self.opt_vae.zero_grad()
        loss.backward()
        self.opt_vae.step()
        return loss.item()

    def critic_phase(self, x, fake):
        loss = softplus(-self.critic(x)).mean() + softplus(self.critic(fake)).mean()
        self.opt_critic.zero_grad()
        loss.backward()
        self.opt_critic.step()
        return loss.item()

    def generator_phase(self, fake):
        loss = softplus(-self.critic(fake)).mean()
        self.opt_vae.zero_grad()
        loss.backward()
        self.opt_vae.step()
        return loss.item()

    def train_batch(self, x):
        x_rec, kl = self.vae(x)
        return (
            self.autoencoder_phase(x, x_rec, kl),
            self.critic_phase(x, x_rec.detach()),
            self.generator_phase(self.vae(x)[0]),
        )


def main():
    torch.manual_seed(21)
    model = VAEGAN(dim=12, latent=3)
    for step in range(4):
        x = (torch.rand(16, 1) + 0.3 * torch.rand(16, 12)).clamp(max=1.0)
        print(step, model.train_batch(x))


if __name__ == "__main__":
    main()
