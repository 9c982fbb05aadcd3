import torch
from torch import nn

from losses_fixed import backward_patch_nce


class Translator(nn.Module):
    def __init__(self, ch=6):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, ch, 3, padding=1), nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, x):
        return torch.tanh(self.b(torch.relu(self.a(x))))


class PatchEncoder(nn.Module):
    def __init__(self, ch=8, patch=4):
        super().__init__()
        self.conv, self.patch = nn.Conv2d(3, ch, 3, padding=1), patch

    def forward(self, x):
        """(batch, 3, h, w) to (batch * patches, features)"""
        maps = nn.functional.leaky_relu(self.conv(x), 0.2)
        cols = nn.functional.unfold(maps, self.patch, stride=self.patch)
        return nn.functional.normalize(cols.transpose(1, 2).flatten(0, 1), dim=1)


def main():
    torch.manual_seed(7)
    G, E = Translator(), PatchEncoder()
    opt = torch.optim.Adam([*G.parameters(), *E.parameters()], lr=1e-3)
    for it in range(3):
        horse = torch.rand(2, 3, 16, 16)
        zebra = G(horse)
        keys = E(horse).detach()
        patches = E(zebra)
        opt.zero_grad()
        value = backward_patch_nce(patches, keys, chunk_size=8)
        opt.step()
        print(it, value)


if __name__ == "__main__":
    main()
