"""向量量化自编码器的小例子。"""
import torch
import torch.nn.functional as F
from torch import nn


class 向量量化层(nn.Module):
    def __init__(self, 码数, 维度, 系数=0.25):
        super().__init__()
        self.码本 = nn.Embedding(码数, 维度)
        self.系数 = 系数

    def forward(self, 隐变量):
        with torch.no_grad():
            序号 = torch.cdist(隐变量, self.码本.weight).argmin(dim=-1)
        量化 = self.码本(序号)
        码本损失 = F.mse_loss(量化, 隐变量.detach())
        承诺损失 = F.mse_loss(隐变量, 量化.detach())
        直通 = 隐变量 + (量化 - 隐变量).detach()  # 直通估计:梯度原样传给编码器
        return 直通, 码本损失 + self.系数 * 承诺损失


class 自编码器(nn.Module):
    def __init__(self, 输入维度, 隐维度, 码数):
        super().__init__()
        self.编码器 = nn.Sequential(nn.Linear(输入维度, 32), nn.ReLU(), nn.Linear(32, 隐维度))
        self.量化层 = 向量量化层(码数, 隐维度)
        self.解码器 = nn.Sequential(nn.Linear(隐维度, 32), nn.ReLU(), nn.Linear(32, 输入维度))

    def forward(self, 输入):
        隐变量 = self.编码器(输入)
        直通, 量化损失 = self.量化层(隐变量)
        return self.解码器(直通), 量化损失


def 训练一步(模型, 优化器, 输入):
    重建, 量化损失 = 模型(输入)
    重建损失 = F.mse_loss(重建, 输入)
    优化器.zero_grad()
    (重建损失 + 量化损失).backward()
    优化器.step()
    return 重建损失.item(), 量化损失.item()


def 主程序(步数=4):
    torch.manual_seed(26)
    模型 = 自编码器(输入维度=10, 隐维度=4, 码数=8)
    优化器 = torch.optim.Adam(模型.parameters(), lr=1e-3)
    for 步 in range(步数):
        print("第", 步, "步:", 训练一步(模型, 优化器, torch.randn(32, 10)))


if __name__ == "__main__":
    主程序()
