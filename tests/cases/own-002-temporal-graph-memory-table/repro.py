import torch
from torch import nn

from memory import NodeMemory


class LinkPredictor(nn.Module):
    def __init__(self, n_nodes, dim, event_dim):
        super().__init__()
        self.memory = NodeMemory(n_nodes, dim, event_dim)
        self.features = nn.Embedding(n_nodes, dim)
        self.score = nn.Bilinear(dim, dim, 1)

    def embed(self, nodes):
        return self.features(nodes) + self.memory.read(nodes)

    def forward(self, src, dst):
        return self.score(self.embed(src), self.embed(dst)).squeeze(1)


def event_batches(n_batches, size, n_nodes, event_dim):
    for _ in range(n_batches):
        src = torch.randperm(n_nodes)[:size]
        dst = (src + torch.randint(1, 4, (size,))) % n_nodes
        yield src, dst, torch.randn(size, event_dim)


def batch_loss(model, src, dst, n_nodes):
    positive = model(src, dst)
    negative = model(src, torch.randint(0, n_nodes, dst.shape))
    return nn.functional.softplus(-positive).mean() + nn.functional.softplus(negative).mean()


def train(n_nodes=30):
    torch.manual_seed(11)
    model = LinkPredictor(n_nodes, dim=8, event_dim=4)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step, (src, dst, event) in enumerate(event_batches(6, 10, n_nodes, 4)):
        loss = batch_loss(model, src, dst, n_nodes)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.memory.write(src, dst, event)
        print(f"batch {step}: {loss.item():.4f}")


train()
