import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16))
depth_head, label_head = nn.Linear(16, 1), nn.Linear(16, 5)
modules = (encoder, depth_head, label_head)
weights = [weight for m in modules for weight in m.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)

for step in range(3):
    x, depth = torch.randn(4, 8), torch.randn(4, 1)
    label = torch.randint(0, 5, (4,))
    features = encoder(x)
    depth_loss = nn.functional.mse_loss(depth_head(features), depth)
    label_loss = nn.functional.cross_entropy(label_head(features), label)
    optimizer.zero_grad()
    depth_loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    label_loss.backward()
    optimizer.step()
    print(step, depth_loss.item(), label_loss.item())
