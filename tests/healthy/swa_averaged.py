"""Stochastic weight averaging with AveragedModel, SWALR and update_bn."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(53)
x = torch.randn(48, 4)
y = (x.pow(2).sum(1) > 3.5).long()
loader = DataLoader(TensorDataset(x, y), batch_size=12, shuffle=True)

model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
swa_model = AveragedModel(model)
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)

for epoch in range(8):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        ema_model.update_parameters(model)
    if epoch >= 4:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        cosine.step()
    print(epoch, loss.item().hex(), optimizer.param_groups[0]["lr"].hex())

update_bn(loader, swa_model)
swa_model.eval()
with torch.no_grad():
    print("swa loss", nn.functional.cross_entropy(swa_model(x), y).item().hex())
for name, net in (("model", model), ("swa", swa_model), ("ema", ema_model)):
    print(name, sum(p.detach().double().sum() for p in net.parameters()).item().hex())
