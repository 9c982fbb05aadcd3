import torch
from torch import nn


def make_parts():
    encoder = nn.Sequential(nn.Linear(30, 16), nn.LeakyReLU(), nn.Linear(16, 6))
    head = nn.Sequential(nn.LeakyReLU(), nn.Linear(6, 3))
    return encoder, head


def training_step(encoder, head, optimizer, batch):
    spectra, grape = batch
    code = encoder(spectra)
    logits = head(code)
    loss = nn.functional.cross_entropy(logits, grape)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), (logits.argmax(1) == grape).float().mean().item()


def wine(n, prototypes):
    grape = torch.randint(0, 3, (n,))
    return prototypes[grape] + 0.8 * torch.randn(n, 30), grape


def main():
    torch.manual_seed(30)
    prototypes = torch.randn(3, 30)
    encoder, head = make_parts()
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=5e-3)
    for it in range(15):
        loss, accuracy = training_step(encoder, head, optimizer, wine(24, prototypes))
    print(f"last loss {loss:.4f}, accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
