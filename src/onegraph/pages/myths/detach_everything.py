import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(4, 8), nn.Linear(8, 1)
for _ in range(3):
    features = encoder(torch.randn(8, 4)).tanh().detach()
    head(features).square().mean().backward()
print("the encoder's gradient:", encoder.weight.grad)
