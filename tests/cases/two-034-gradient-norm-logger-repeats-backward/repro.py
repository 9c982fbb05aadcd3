import torch
from torch import nn
from torch.nn import functional as F

from logbook import gradient_norms


class TinyGPT(nn.Module):
    def __init__(self, vocab, dim=16, block=10):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(block, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.0, batch_first=True)
        self.ln = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight = self.tok.weight

    def forward(self, idx, targets=None):
        t = idx.size(1)
        mask = torch.full((t, t), float("-inf")).triu(1)
        x = self.tok(idx) + self.pos(torch.arange(t))
        logits = self.lm_head(self.ln(self.layer(x, src_mask=mask)))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


class Run:
    def __init__(self, model, max_steps, log_every=5):
        self.model, self.max_steps, self.log_every = model, max_steps, log_every
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / 4))
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step(self, idx):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            _, loss = self.model(idx[:, :-1], idx[:, 1:].contiguous())
        self.opt.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.sched.step()
        return loss

    def __call__(self, batches):
        for it in range(1, self.max_steps + 1):
            loss = self.step(next(batches))
            print(it, f"{loss.item():.3f}")
            if it % self.log_every == 0:
                print("   largest:", gradient_norms(self.model, loss)[:2])


def batches():
    while True:
        yield (torch.randint(0, 12, (4, 1)) + torch.arange(9)) % 12


if __name__ == "__main__":
    torch.manual_seed(0)
    Run(TinyGPT(12), max_steps=8)(batches())
