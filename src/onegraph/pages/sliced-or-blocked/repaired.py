import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)

for step in range(3):
    frames, target = torch.randn(6, 8), torch.randn(6, 16)
    features = encoder(frames)
    optimizer.zero_grad()
    losses = []
    for i in range(0, 6, 2):
        difference = features[i : i + 2] - target[i : i + 2]
        loss = difference.square().sum()
        losses.append(loss)
        print(step, i, loss.item())
    sum(losses).backward()
    optimizer.step()
