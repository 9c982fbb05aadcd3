import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(6)


class BiLSTMTagger(nn.Module):
    def __init__(self, vocab_size, tagset_size, embedding_dim=12, hidden_dim=16):
        super().__init__()
        self.word_embeds = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(hidden_dim, tagset_size)

    def forward(self, sentences, lengths):
        packed = pack_padded_sequence(self.word_embeds(sentences), lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return self.hidden2tag(out)


def collate(batch):
    words, tags = zip(*batch)
    lengths = torch.tensor([len(w) for w in words])
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True), lengths


corpus = []
for _ in range(12):
    n = int(torch.randint(3, 9, ()))
    words = torch.randint(1, 30, (n,))
    corpus.append((words, words % 4))

model = BiLSTMTagger(30, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4)
loss_function = nn.CrossEntropyLoss()

for epoch in range(2):
    for start in range(0, len(corpus), 4):
        sentences, tags, lengths = collate(corpus[start : start + 4])
        model.zero_grad()
        logits = model(sentences, lengths)
        batch_loss = 0.0
        for i, n in enumerate(lengths.tolist()):
            loss = loss_function(logits[i, :n], tags[i, :n]) / len(lengths)
            batch_loss = batch_loss + loss
        batch_loss.backward()
        optimizer.step()
        print(epoch, start, batch_loss.item())
