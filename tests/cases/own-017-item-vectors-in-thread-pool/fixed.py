from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import nn


def build_item_tower(n_items, dim):
    return nn.Sequential(nn.Embedding(n_items, 2 * dim), nn.Tanh(), nn.Linear(2 * dim, dim))


def bpr_loss(user, liked, disliked):
    """Bayesian personalised ranking: liked items should score higher."""
    return -nn.functional.logsigmoid((liked - disliked) @ user).mean()


def epoch_loss(user, vectors, likes, generator):
    negatives = torch.randint(0, len(vectors), likes.shape, generator=generator)
    return bpr_loss(user, vectors[likes], vectors[negatives])


def train_user(job, vectors, epochs):
    name, likes = job
    generator = torch.Generator().manual_seed(len(name))
    user = torch.zeros(vectors.size(1), requires_grad=True)
    opt = torch.optim.Adagrad([user], lr=0.5)
    for _ in range(epochs):
        loss = epoch_loss(user, vectors, likes, generator)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return name, loss.item()


def fit_all(jobs, vectors, workers=1):
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return dict(pool.map(partial(train_user, vectors=vectors, epochs=4), jobs))


def main():
    torch.manual_seed(15)
    tower = build_item_tower(n_items=40, dim=6)
    with torch.no_grad():
        item_vectors = tower(torch.arange(40))
    jobs = [(name, torch.randint(0, 40, (8,))) for name in ("ada", "grace", "barbara")]
    for name, loss in fit_all(jobs, item_vectors).items():
        print(f"{name}: {loss:.4f}")


if __name__ == "__main__":
    main()
