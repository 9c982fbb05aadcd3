import copy

import torch
from torch import nn
import torch.nn.functional as F


class Scorer(nn.Module):
    """Log-likelihood of a token sequence under a first-order model."""

    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        logp = self.out(torch.tanh(self.embed(tokens[:, :-1]))).log_softmax(-1)
        return logp.gather(-1, tokens[:, 1:, None]).sum(dim=(1, 2))


def margin(model, batch):
    return model(batch["chosen"]) - model(batch["rejected"])


def annotate(batches, reference):
    reference.eval()
    for batch in batches:
        batch["reference"] = margin(reference, batch).detach()
    return batches


def preference_loss(policy, batch, beta=0.3):
    return -F.logsigmoid(beta * (margin(policy, batch) - batch["reference"])).mean()


class PreferenceTrainer:
    def __init__(self, policy, lr):
        self.policy = policy
        self.opt = torch.optim.AdamW(policy.parameters(), lr=lr)

    def epoch(self, batches):
        losses = []
        for batch in batches:
            loss = preference_loss(self.policy, batch)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)


def make_batches(n, size, length, vocab):
    draw = lambda: torch.randint(0, vocab, (size, length))
    return [{"chosen": draw().sort(dim=1).values, "rejected": draw()} for _ in range(n)]


def main():
    torch.manual_seed(38)
    policy = Scorer(vocab=15, dim=8)
    batches = annotate(make_batches(3, 6, 7, 15), copy.deepcopy(policy))
    trainer = PreferenceTrainer(policy, lr=5e-3)
    for epoch in range(3):
        print(epoch, trainer.epoch(batches))


if __name__ == "__main__":
    main()
