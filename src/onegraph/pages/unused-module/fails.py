import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.mix = nn.Linear(8, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, notes):
        melody = self.embed(notes).mean(dim=1)
        return self.out(torch.tanh(melody))


torch.manual_seed(0)
model = Scorer()
weights = list(model.parameters())
for step in range(3):
    notes, liked = torch.randint(0, 50, (4, 6)), torch.rand(4, 1)
    loss = nn.functional.mse_loss(model(notes), liked)
    slopes = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, slope in zip(weights, slopes):
            weight -= 0.1 * slope
    print(step, loss.item())
