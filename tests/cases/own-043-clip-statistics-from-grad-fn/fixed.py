import torch
from torch import nn

from quantise import QuantisedLinear


def make_model():
    return nn.Sequential(QuantisedLinear(8, 16), nn.ReLU(), QuantisedLinear(16, 3))


def report(step, model, loss):
    shares = [m.clipped_share() for m in model if isinstance(m, QuantisedLinear)]
    print(f"{step}: loss {loss.item():.4f}, clipped {[round(s, 3) for s in shares]}")


def train_step(step, model, opt):
    x = torch.randn(32, 8)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    opt.zero_grad()
    report(step, model, loss)
    loss.backward()
    opt.step()


def main():
    torch.manual_seed(41)
    model = make_model()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        train_step(step, model, opt)


if __name__ == "__main__":
    main()
