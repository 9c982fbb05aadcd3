import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(3):
    words, spam = torch.randn(8, 20), torch.randint(0, 2, (8, 1))
    score = model(words)
    loss = nn.BCEWithLogitsLoss()(score, spam.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
