from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Part:
    x: Tensor
    y: Tensor
    z: Tensor | None = None

    def class_means(self):
        return torch.stack([self.z[self.y == c].mean(0) for c in range(int(self.y.max()) + 1)])


@dataclass
class Episode:
    support: Part
    query: Part


class SetNet(nn.Module):
    def __init__(self, n_in=5, dim=10):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(n_in, 20), nn.SiLU())
        self.rho = nn.Linear(20, dim)

    def embed(self, x):
        return self.rho(self.phi(x).mean(dim=1))


def episode_loss(net, episode):
    for part in (episode.support, episode.query):
        part.z = net.embed(part.x)
    protos = episode.support.class_means()
    return F.cross_entropy(-torch.cdist(episode.query.z, protos), episode.query.y)


def orthogonality(episode):
    m = F.normalize(episode.support.class_means(), dim=1)
    gram = m @ m.t()
    return (gram - torch.eye(len(m))).square().mean()


def draw(ways=3, shots=4, queries=2):
    centres = torch.randn(ways, 5)

    def part(n):
        y = torch.arange(ways).repeat_interleave(n)
        return Part(centres[y][:, None] + 0.5 * torch.randn(len(y), 6, 5), y)

    return Episode(part(shots), part(queries))


def main():
    torch.manual_seed(3)
    net = SetNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for it in range(4):
        episode = draw()
        opt.zero_grad()
        loss = episode_loss(net, episode)
        loss.backward()
        penalty = 0.1 * orthogonality(episode)
        penalty.backward()
        opt.step()
        print(it, loss.item(), penalty.item())


main()
