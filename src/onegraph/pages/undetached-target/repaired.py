import torch
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
student = nn.Linear(8, 4)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

x = torch.randn(32, 8)
wanted = teacher(x).detach()
for epoch in range(3):
    loss = nn.functional.mse_loss(student(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
