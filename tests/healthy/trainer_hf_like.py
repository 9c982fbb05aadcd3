"""A Trainer in the manner of Hugging Face: model outputs, arguments, evaluation, logs."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class TrainingArguments:
    learning_rate: float = 5e-3
    num_train_epochs: int = 3
    per_device_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    max_grad_norm: float = 1.0


@dataclass
class ModelOutput:
    loss: torch.Tensor | None
    logits: torch.Tensor


class ForSequenceClassification(nn.Module):
    def __init__(self, vocab=30, dim=16, labels=2):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.encoder = nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True, norm_first=True)
        self.classifier = nn.Linear(dim, labels)

    def forward(self, input_ids, labels=None):
        logits = self.classifier(self.encoder(self.embeddings(input_ids)).mean(1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return ModelOutput(loss, logits)


@dataclass
class Trainer:
    model: nn.Module
    args: TrainingArguments
    train_dataset: list
    eval_dataset: list
    log_history: list = field(default_factory=list)

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs).loss / self.args.gradient_accumulation_steps
        loss.backward()
        return loss.detach()

    def train(self):
        a = self.args
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=a.learning_rate)
        loader = DataLoader(self.train_dataset, a.per_device_batch_size, shuffle=True)
        tr_loss = torch.tensor(0.0)
        for epoch in range(a.num_train_epochs):
            for step, inputs in enumerate(loader):
                tr_loss += self.training_step(inputs)
                if (step + 1) % a.gradient_accumulation_steps == 0:
                    nn.utils.clip_grad_norm_(self.model.parameters(), a.max_grad_norm)
                    optimizer.step()
                    self.model.zero_grad()
            self.log_history.append({"epoch": epoch, "loss": tr_loss.item(), **self.evaluate()})
            tr_loss -= tr_loss

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        outputs = [self.model(**batch) for batch in DataLoader(self.eval_dataset, 8)]
        return {"eval_loss": torch.stack([o.loss for o in outputs]).mean().item()}


def dataset(count):
    ids = torch.randint(0, 30, (count, 6))
    return [{"input_ids": row, "labels": (row.sum() > 87).long()} for row in ids]


torch.manual_seed(44)
trainer = Trainer(ForSequenceClassification(), TrainingArguments(), dataset(32), dataset(16))
trainer.train()
for entry in trainer.log_history:
    print(entry["epoch"], entry["loss"].hex(), entry["eval_loss"].hex())
print("parameters", sum(p.double().sum() for p in trainer.model.parameters()).item().hex())
