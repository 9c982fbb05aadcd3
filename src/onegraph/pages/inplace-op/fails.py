import torch
from torch import nn

torch.manual_seed(0)
equaliser, decoder = nn.Linear(8, 16), nn.Linear(16, 8)
weights = [*equaliser.parameters(), *decoder.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.1)

for step in range(3):
    sound, clean = torch.randn(4, 8), torch.randn(4, 8)
    gain = torch.sigmoid(equaliser(sound))
    gain += 1
    loss = nn.functional.mse_loss(decoder(gain), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
