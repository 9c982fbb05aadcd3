import torch
from torch import nn


def to_corners(boxes):
    cx, cy, w, h = boxes.unbind(dim=-1)
    cx -= w / 2
    cy -= h / 2
    return torch.stack([cx, cy, cx + w, cy + h], dim=-1)


def overlap(a, b):
    top = torch.maximum(a[..., :2], b[..., :2])
    bottom = torch.minimum(a[..., 2:], b[..., 2:])
    inter = (bottom - top).clamp(min=0).prod(-1)
    area = lambda t: (t[..., 2:] - t[..., :2]).prod(-1)
    return inter / (area(a) + area(b) - inter + 1e-6)


def corners_of(truth):
    half = truth[..., 2:] / 2
    return torch.cat([truth[..., :2] - half, truth[..., :2] + half], dim=-1)


torch.manual_seed(17)
backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
backbone(torch.zeros(1, 3, 12, 12))
opt = torch.optim.Adam(backbone.parameters(), lr=1e-3)
for epoch in range(2):
    photos = torch.rand(5, 3, 12, 12)
    truth = torch.rand(5, 4) * 0.4 + 0.3
    pred = backbone(photos).sigmoid()
    loss = 1 - overlap(to_corners(pred), corners_of(truth)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item())
