import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(3):
    soil, crop = torch.randn(8, 5), torch.randint(0, 4, (8,))
    scores = model(soil)
    chosen = scores.argmax(dim=1)
    loss = nn.functional.mse_loss(chosen.float(), crop.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
