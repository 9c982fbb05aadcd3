"""Mixed precision on the CPU: bfloat16 autocast with a GradScaler, enabled and disabled."""

import torch
from torch import nn


def train(enabled):
    torch.manual_seed(19)
    model = nn.Sequential(
        nn.Conv1d(2, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 16), nn.Linear(16, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
    x, y = torch.randn(30, 2, 8), torch.randint(0, 3, (30,))
    for step in range(8):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 3 == 0:
            print(enabled, step, logits.dtype, loss.item().hex(), norm.item().hex())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        print("eval", model(x).argmax(1).sum().item(), scaler.get_scale())
    print("parameters", sum(p.double().sum() for p in model.parameters()).item().hex())


for enabled in (True, False):
    train(enabled)
