import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
weights = [*encoder.parameters(), *layers.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)


def decode(x, context):
    for layer in layers:

        def block(x, context, layer=layer):
            return torch.tanh(layer(x) * context)

        x = checkpoint(block, x, context, use_reentrant=True)
    return x


for step in range(3):
    context = encoder(torch.randn(4, 6))
    x = torch.randn(4, 8, requires_grad=True)
    loss = decode(x, context).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
