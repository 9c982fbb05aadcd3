import torch

torch.manual_seed(0)
landmarks = torch.randn(20, 3)
turned = landmarks @ torch.linalg.qr(torch.randn(3, 3)).Q
seen = turned + torch.tensor([1.0, 2.0, 3.0])

turn = torch.eye(3, requires_grad=True)
shift = (0.01 * torch.randn(3)).requires_grad_()
optimizer = torch.optim.Adam([turn, shift], lr=0.1)
for step in range(3):
    loss = (landmarks @ turn + shift - seen).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
