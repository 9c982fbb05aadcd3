import torch
from torch import nn


def forward_score(emissions, trans):
    """Log of the summed score of all tag paths; emissions [T, K], trans [K, K]."""
    alpha = emissions[0]
    for emit in emissions[1:]:
        alpha = torch.logsumexp(alpha[:, None] + trans, dim=0) + emit
    return torch.logsumexp(alpha, dim=0)


def path_score(emissions, trans, tags):
    steps = trans[tags[:-1], tags[1:]].sum()
    return emissions.gather(1, tags[:, None]).sum() + steps


def negative_log_likelihood(emissions, trans, tags):
    return forward_score(emissions, trans) - path_score(emissions, trans, tags)


class Tagger(nn.Module):
    def __init__(self, vocab, n_tags, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.emit = nn.Linear(dim, n_tags)
        self.raw_transitions = nn.Parameter(torch.randn(n_tags, n_tags))

    def transitions(self):
        return self.raw_transitions.log_softmax(dim=1)

    def emissions(self, words):
        return self.emit(torch.tanh(self.embed(words)))
