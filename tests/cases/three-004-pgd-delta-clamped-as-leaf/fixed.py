import torch
from torch import nn


def linf_attack(net, sound, label, eps=0.03, alpha=0.01, iterations=5):
    delta = torch.empty_like(sound).uniform_(-eps, eps).requires_grad_()
    for _ in range(iterations):
        loss = nn.functional.cross_entropy(net(sound + delta), label)
        (grad,) = torch.autograd.grad(loss, delta)
        with torch.no_grad():
            delta += alpha * grad.sign()
            delta.clamp_(-eps, eps)
    return (sound + delta).detach()


def build(classes):
    return nn.Sequential(
        nn.Conv1d(1, 6, 9, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(24, classes),
    )


torch.manual_seed(11)
keyword_net = build(4).eval()
sound = torch.randn(3, 1, 120) * 0.2
label = torch.tensor([0, 3, 1])
adversarial = linf_attack(keyword_net, sound, label)
before = keyword_net(sound).argmax(1)
after = keyword_net(adversarial).argmax(1)
print("changed", int((before != after).sum()), "of", len(label))
