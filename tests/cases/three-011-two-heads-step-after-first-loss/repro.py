import torch
from torch import nn


class SkinNet(nn.Module):
    def __init__(self, wavelengths=10):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(wavelengths, 24), nn.Tanh(), nn.Linear(24, 12), nn.Tanh())
        self.melanin = nn.Linear(12, 1)
        self.lesion = nn.Linear(12, 2)

    def forward(self, spectrum):
        z = self.shared(spectrum)
        return self.melanin(z).squeeze(-1), self.lesion(z)


def batches(n, size=12):
    for _ in range(n):
        spectrum = torch.rand(size, 10)
        yield spectrum, spectrum.mean(1), (spectrum[:, 0] > 0.5).long()


torch.manual_seed(77)
net = SkinNet()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=True)
for spectrum, melanin, lesion in batches(3):
    pred_m, pred_l = net(spectrum)
    loss_m = nn.functional.mse_loss(pred_m, melanin)
    loss_l = nn.functional.cross_entropy(pred_l, lesion)

    opt.zero_grad()
    loss_m.backward(retain_graph=True)
    opt.step()

    opt.zero_grad()
    loss_l.backward()
    opt.step()
    print(loss_m.item(), loss_l.item())
