import torch
from torch import nn


class QuantConv(nn.Module):
    """Convolution whose kernel is stored in a few integer levels."""

    def __init__(self, c_in, c_out, size, bits=3):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(c_out, c_in, size, size) * 0.3)
        self.step = 2.0 / 2**bits

    def quantised(self):
        scaled = self.kernel / self.step
        levels = scaled + (torch.round(scaled) - scaled).detach()
        return levels.clamp(-4, 3) * self.step

    def forward(self, x):
        return nn.functional.conv2d(x, self.quantised(), stride=2)


class TinyCamera(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = QuantConv(1, 6, 3)
        self.back = nn.Linear(6, 2)

    def forward(self, x):
        return self.back(torch.relu(self.front(x)).mean(dim=(2, 3)))


torch.manual_seed(34)
net = TinyCamera()
start = net.front.kernel.detach().clone()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    stripes = torch.randint(0, 2, (12,))
    frames = torch.rand(12, 1, 9, 9)
    frames[stripes == 1, :, ::2] += 0.7
    loss = nn.functional.cross_entropy(net(frames), stripes)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item(), "kernel moved", (net.front.kernel.detach() - start).abs().max().item())
