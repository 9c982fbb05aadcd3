import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
model = nn.ModuleList([encoder, blocks])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(3):
    context = encoder(torch.randn(4, 6))
    x = torch.randn(4, 8, requires_grad=True)
    for block in blocks:

        def mix(x, context, block=block):
            return torch.tanh(block(x) * context)

        x = checkpoint(mix, x, context, use_reentrant=True)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
