import torch
from torch import nn
import torch.nn.functional as F


class BagClassifier(nn.Module):
    """Multiple-instance learning: a bag is positive when one of its cells is."""

    def __init__(self, features):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(features, 12), nn.GELU(), nn.Linear(12, 1))

    def forward(self, bag):
        return self.score(bag).squeeze(-1).logsumexp(dim=0)


def batch_loss(model, bags, targets):
    per_bag = []
    for bag, target in zip(bags, targets):
        bag_loss = F.binary_cross_entropy_with_logits(model(bag), target)
        per_bag.append(bag_loss.item())
    return torch.tensor(per_bag).mean()


def make_bags(count, generator):
    sizes = torch.randint(3, 9, (count,), generator=generator).tolist()
    return [torch.randn(n, 6, generator=generator) for n in sizes]


generator = torch.Generator().manual_seed(7)
torch.manual_seed(7)
model = BagClassifier(6)
opt = torch.optim.Adamax(model.parameters(), lr=5e-3)
for epoch in range(3):
    bags = make_bags(8, generator)
    targets = torch.stack([(bag[:, 0].max() > 1.2).float() for bag in bags])
    loss = batch_loss(model, bags, targets)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
