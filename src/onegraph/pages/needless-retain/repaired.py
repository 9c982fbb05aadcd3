import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(9, 32), nn.GELU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(8):
    joints, torque = torch.randn(16, 9), torch.randn(16, 2)
    loss = nn.functional.smooth_l1_loss(model(joints), torque)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
