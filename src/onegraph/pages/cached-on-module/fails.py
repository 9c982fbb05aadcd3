import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.names = nn.Parameter(torch.randn(5, 8))
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.classes = self.encoder(self.names)

    def forward(self, x):
        return self.trunk(x) @ self.classes.T


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(4, 8), torch.randint(0, 5, (4,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
