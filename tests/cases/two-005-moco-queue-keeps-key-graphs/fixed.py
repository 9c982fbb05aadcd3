import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim_in, dim):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim_in, 32), nn.ReLU())
        self.proj = nn.Linear(32, dim)

    def forward(self, x):
        return F.normalize(self.proj(self.trunk(x)), dim=1)


class MoCo(nn.Module):
    """Momentum contrast with a queue of K negatives."""

    def __init__(self, dim_in=20, dim=8, K=32, m=0.99, T=0.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = Encoder(dim_in, dim)
        self.encoder_k = copy.deepcopy(self.encoder_q)
        self.register_buffer("queue", F.normalize(torch.randn(K, dim), dim=1))

    @torch.no_grad()
    def _momentum_update(self):
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.mul_(self.m).add_(pq, alpha=1 - self.m)

    def _dequeue_and_enqueue(self, keys):
        self.queue = torch.cat([self.queue, keys])[-self.K :]

    def forward(self, im_q, im_k):
        q = self.encoder_q(im_q)
        self._momentum_update()
        k = self.encoder_k(im_k).detach()
        l_pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        l_neg = torch.einsum("nc,kc->nk", q, self.queue)
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        labels = torch.zeros(len(logits), dtype=torch.long)
        self._dequeue_and_enqueue(k)
        return F.cross_entropy(logits, labels)


def augment(x):
    return x + 0.1 * torch.randn_like(x)


def train():
    torch.manual_seed(4)
    model = MoCo()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.03, momentum=0.9)
    for step in range(6):
        images = torch.randn(8, 20)
        loss = model(augment(images), augment(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


train()
