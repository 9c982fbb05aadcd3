"""Mean-teacher training: a deep-copied teacher follows the student by exponential average."""

import copy

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.module.parameters(), model.parameters(), strict=True):
            mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)
        for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)


torch.manual_seed(31)
student = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
teacher = EMA(student, decay=0.9)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
labelled, labels = torch.randn(12, 5), torch.randint(0, 3, (12,))
unlabelled = torch.randn(48, 5)

for step in range(12):
    idx = torch.randperm(48)[:16]
    noisy = unlabelled[idx] + 0.1 * torch.randn(16, 5)
    with torch.no_grad():
        target = teacher.module(unlabelled[idx]).softmax(-1)
    supervised = nn.functional.cross_entropy(student(labelled), labels)
    consistency = nn.functional.mse_loss(student(noisy).softmax(-1), target)
    loss = supervised + 2.0 * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    teacher.update(student)
    if step % 4 == 3:
        print(step, supervised.item().hex(), consistency.item().hex())
for name, net in (("student", student), ("teacher", teacher.module)):
    print(name, sum(p.double().sum() for p in net.parameters()).item().hex())
