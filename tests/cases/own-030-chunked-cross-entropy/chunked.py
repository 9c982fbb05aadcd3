import torch.nn.functional as F


def chunk_loss(head, part, target, total):
    return F.cross_entropy(head(part), target, reduction="sum") / total


def backward_in_chunks(head, hidden, target, n_chunks):
    """Never hold more than one chunk of logits; returns the loss as a number."""
    value = 0.0
    for part, want in zip(hidden.chunk(n_chunks), target.chunk(n_chunks)):
        loss = chunk_loss(head, part, want, len(target))
        loss.backward()
        value += loss.item()
    return value
