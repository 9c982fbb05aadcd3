"""Style transfer: the image is optimised against Gram matrices of a frozen feature extractor."""

import torch
import torch.nn.functional as F
from torch import nn


def gram_matrix(features):
    b, c, h, w = features.size()
    flat = features.view(b * c, h * w)
    return torch.mm(flat, flat.t()).div(b * c * h * w)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = F.mse_loss(x, self.target)
        return x


class StyleLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram_matrix(target).detach()

    def forward(self, x):
        self.loss = F.mse_loss(gram_matrix(x), self.target)
        return x


torch.manual_seed(51)
content, style = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)
cnn = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU()).eval()
cnn.requires_grad_(False)

model, style_losses, content_losses = nn.Sequential(), [], []
for i, layer in enumerate(cnn):
    model.add_module(f"layer{i}", layer)
    if isinstance(layer, nn.Conv2d):
        style_losses.append(StyleLoss(model(style)))
        model.add_module(f"style{i}", style_losses[-1])
content_losses.append(ContentLoss(model(content)))
model.add_module("content", content_losses[-1])

image = content.clone().requires_grad_(True)
optimizer = torch.optim.Adam([image], lr=0.02)
for step in range(20):
    optimizer.zero_grad()
    model(image)
    style_score = sum(s.loss for s in style_losses)
    content_score = sum(c.loss for c in content_losses)
    loss = 1000 * style_score + content_score
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        image.clamp_(0, 1)
    if step % 5 == 4:
        print(step, style_score.item().hex(), content_score.item().hex())
print("gradient", image.grad.double().abs().sum().item().hex())
print("image", image.detach().double().sum().item().hex())
