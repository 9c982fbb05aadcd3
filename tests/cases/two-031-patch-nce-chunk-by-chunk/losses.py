import torch
import torch.nn.functional as F


def patch_nce(q, k, positives, tau=0.1):
    logits = torch.einsum("qd,kd->qk", q, k) / tau
    return F.cross_entropy(logits, positives)


def backward_patch_nce(queries, keys, chunk_size):
    """Back-propagates the mean loss over all patches, chunk by chunk."""
    where = torch.arange(len(queries))
    total = 0.0
    for q, positives in zip(queries.split(chunk_size), where.split(chunk_size)):
        loss = patch_nce(q, keys, positives) * len(q) / len(queries)
        loss.backward()
        total += loss.item()
    return total
