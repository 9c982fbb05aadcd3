import torch
from torch import nn

torch.manual_seed(0)
单元 = nn.GRUCell(3, 5)
隐藏状态 = torch.zeros(2, 5)

for 步 in range(3):
    隐藏状态 = 单元(torch.randn(2, 3), 隐藏状态)  # 把上一步的隐藏状态传进来
    损失 = 隐藏状态.square().mean()
    损失.backward()  # 反向传播
