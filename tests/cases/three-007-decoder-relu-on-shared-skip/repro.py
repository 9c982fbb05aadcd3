import torch
from torch import nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x):
        skip = self.first(x)
        return skip, F.relu(self.second(F.max_pool2d(skip, 2)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.Conv2d(6, 1, 1)
        self.merge = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, skip, deep):
        where = self.attend(skip).sigmoid()
        up = F.interpolate(deep, scale_factor=2)
        joined = torch.cat([F.relu_(skip), up * where], dim=1)
        return self.merge(joined)


def dice(logits, mask):
    p = logits.sigmoid()
    return 1 - 2 * (p * mask).sum() / (p.sum() + mask.sum())


def main():
    torch.manual_seed(8)
    encoder, decoder = Encoder(), Decoder()
    params = list(encoder.parameters()) + list(decoder.parameters())
    sgd = torch.optim.SGD(params, lr=0.05, nesterov=True, momentum=0.9)
    for it in range(2):
        scan = torch.randn(2, 2, 8, 8)
        mask = (scan[:, :1] > 0.4).float()
        loss = dice(decoder(*encoder(scan)), mask)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        print(it, loss.item())


main()
