import torch

from hyper.generator import WeightGenerator
from hyper.target import TargetNet


def sample_task(n_points):
    amplitude, shift = 0.5 + torch.rand(1), 3.0 * torch.rand(1)
    x = 4.0 * torch.rand(n_points, 1) - 2.0
    return x, amplitude * torch.sin(x + shift)


def task_loss(target, x, y):
    return (target(x) - y).square().mean()


class CodeTrainer:
    def __init__(self, n_tasks, code_dim=4, width=8):
        self.codes = torch.nn.Embedding(n_tasks, code_dim)
        self.generator = WeightGenerator(code_dim, [(1, width), (width, 1)])
        params = [*self.codes.parameters(), *self.generator.parameters()]
        self.opt = torch.optim.Adam(params, lr=3e-3)

    def fit_task(self, index, x, y, steps):
        for _ in range(steps):
            target = TargetNet(self.generator, self.codes(torch.tensor(index)))
            loss = task_loss(target, x, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def main():
    torch.manual_seed(19)
    trainer = CodeTrainer(n_tasks=3)
    for index in range(3):
        x, y = sample_task(20)
        print(index, trainer.fit_task(index, x, y, steps=5))


if __name__ == "__main__":
    main()
