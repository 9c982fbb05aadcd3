import torch
import torch.nn as nn
import torch.nn.functional as F


class Projection(nn.Module):
    def __init__(self, n_in, n_out, dropout=0.1):
        super().__init__()
        self.projection = nn.Linear(n_in, n_out)
        self.gelu = nn.GELU()
        self.fc = nn.Linear(n_out, n_out)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(n_out)

    def forward(self, x):
        projected = self.projection(x)
        return self.norm(self.dropout(self.fc(self.gelu(projected))) + projected)


class AudioTextModel(nn.Module):
    def __init__(self, n_audio=20, n_text=14, dim=16):
        super().__init__()
        self.audio_proj = Projection(n_audio, dim)
        self.text_proj = Projection(n_text, dim)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def embed(self, batch):
        a = F.normalize(self.audio_proj(batch["audio"]), dim=-1)
        t = F.normalize(self.text_proj(batch["text"]), dim=-1)
        return a, t

    def forward(self, batch):
        a, t = self.embed(batch)
        logits = self.log_scale.exp() * a @ t.T
        y = torch.arange(len(a))
        return 0.5 * (F.cross_entropy(logits, y) + F.cross_entropy(logits.T, y))


class AvgMeter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, v, n=1):
        self.total, self.n = self.total + v * n, self.n + n

    @property
    def avg(self):
        return self.total / max(1, self.n)


def train_epoch(model, loader, optimizer):
    meter = AvgMeter()
    for batch in loader:
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), len(batch["audio"]))
    return meter.avg


def valid_epoch(model, loader):
    with torch.no_grad():
        return sum(model(batch).item() for batch in loader) / len(loader)


def main():
    torch.manual_seed(5)
    model = AudioTextModel()
    loader = [{"audio": torch.randn(8, 20), "text": torch.randn(8, 14)} for _ in range(3)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print("before:", valid_epoch(model.eval(), loader))
    for epoch in range(2):
        print(epoch, train_epoch(model.train(), loader, optimizer), valid_epoch(model.eval(), loader))


if __name__ == "__main__":
    main()
