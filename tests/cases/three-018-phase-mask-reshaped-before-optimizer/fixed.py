import math
import torch


class Hologram:
    """Phase-only mask whose far field should show a target pattern."""

    def __init__(self, side):
        start = torch.rand(side * side) * 2 * math.pi
        self.mask = start.view(side, side).requires_grad_()

    def parameters(self):
        return [self.mask]

    def far_field(self):
        field = torch.polar(torch.ones_like(self.mask), self.mask)
        return torch.fft.fftshift(torch.fft.fft2(field, norm="ortho")).abs()


def cross(side):
    pattern = torch.zeros(side, side)
    pattern[side // 2, 2:-2] = 1
    pattern[2:-2, side // 2] = 1
    return pattern / pattern.norm()


torch.manual_seed(6)
hologram = Hologram(12)
goal = cross(12)
opt = torch.optim.Adam(hologram.parameters(), lr=0.1)
for it in range(10):
    image = hologram.far_field()
    loss = 1 - (image / image.norm() * goal).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("mismatch", loss.item())
