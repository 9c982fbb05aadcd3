import torch
from torch import nn
import torch.nn.functional as F


class SignDescent(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad.sign(), alpha=-group["lr"])


class Defender(nn.Module):
    """Hides an attribute in a code that should still allow decoding."""

    def __init__(self, d, code):
        super().__init__()
        self.encode, self.decode = nn.Linear(d, code), nn.Linear(code, d)

    def forward(self, x):
        z = torch.tanh(self.encode(x))
        return z, self.decode(z)


torch.manual_seed(13)
defender, attacker = Defender(8, 3), nn.Linear(3, 2)
defend = torch.optim.Adam(defender.parameters(), lr=1e-2)
attack = SignDescent(attacker.parameters(), lr=1e-2)

for turn in range(3):
    people = torch.randn(20, 8)
    secret = (people[:, 1] > 0).long()
    code, rebuilt = defender(people)
    guess = attacker(code)
    leak = F.cross_entropy(guess, secret)
    utility = F.mse_loss(rebuilt, people)

    attack.zero_grad()
    leak.backward(retain_graph=True)
    attack.step()

    defend.zero_grad()
    (utility - 0.2 * leak).backward()
    defend.step()
    print(turn, leak.item(), utility.item())
