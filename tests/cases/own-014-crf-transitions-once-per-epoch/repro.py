import torch

from crf import Tagger, negative_log_likelihood


def make_corpus(n, vocab, n_tags):
    corpus = []
    for _ in range(n):
        words = torch.randint(0, vocab, (int(torch.randint(4, 9, ())),))
        corpus.append((words, words % n_tags))
    return corpus


def sentence_loss(tagger, words, tags, trans):
    nll = negative_log_likelihood(tagger.emissions(words), trans, tags)
    return nll / len(words)


def run_epoch(tagger, opt, corpus):
    trans = tagger.transitions()
    total = 0.0
    for words, tags in corpus:
        loss = sentence_loss(tagger, words, tags, trans)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(corpus)


def main():
    torch.manual_seed(12)
    tagger = Tagger(vocab=30, n_tags=4, dim=8)
    opt = torch.optim.Adam(tagger.parameters(), lr=0.02)
    corpus = make_corpus(10, 30, 4)
    for epoch in range(3):
        print(epoch, run_epoch(tagger, opt, corpus))


if __name__ == "__main__":
    main()
