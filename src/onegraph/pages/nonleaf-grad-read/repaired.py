import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()

for step in range(3):
    pixels, digit = torch.rand(4, 36), torch.randint(0, 10, (4,))
    image = (pixels / 0.3 - 1.5).requires_grad_()
    criterion(model(image), digit).backward()
    attack = image.detach() + 0.1 * image.grad.sign()
    optimizer.zero_grad()
    loss = criterion(model(attack), digit)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
