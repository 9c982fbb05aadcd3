import torch
from torch import nn


class GatedBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.gate = nn.Linear(8, 8)
        self.act = nn.ReLU()

    def forward(self, x):
        h = self.norm(x)
        gate = torch.sigmoid(self.gate(h))
        return x + gate * self.act(h)


torch.manual_seed(0)
model = nn.Sequential(GatedBlock(), GatedBlock(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
