import torch


class WGAN:
    def __init__(self, G, D, n_critic=5, clip=0.02, lr=5e-5):
        self.G, self.D = G, D
        self.n_critic, self.clip = n_critic, clip
        self.opts = {"g": torch.optim.RMSprop(G.parameters(), lr=lr), "d": torch.optim.RMSprop(D.parameters(), lr=lr)}

    def _descend(self, which, loss):
        self.opts[which].zero_grad()
        loss.backward()
        self.opts[which].step()
        return loss.item()

    def _critic(self, real, fake):
        d_loss = self.D(fake).mean() - self.D(real).mean()
        value = self._descend("d", d_loss)
        with torch.no_grad():
            for p in self.D.parameters():
                p.clamp_(-self.clip, self.clip)
        return value

    def _generator(self, n):
        return self._descend("g", -self.D(self.G(torch.randn(n, 6))).mean())

    def iteration(self, real):
        fake = self.G(torch.randn(len(real), 6))
        history = [self._critic(real, fake) for _ in range(self.n_critic)]
        return sum(history) / len(history), self._generator(len(real))
