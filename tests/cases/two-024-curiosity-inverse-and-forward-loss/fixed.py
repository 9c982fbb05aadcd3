import torch

from icm_fixed import ICM


class CorridorWorld:
    def __init__(self, n, width=8):
        self.x, self.width = torch.zeros(n), width

    def observe(self):
        grid = torch.arange(self.width)
        return torch.exp(-(self.x[:, None] - grid) ** 2)

    def step(self, action):
        before = self.observe()
        self.x = (self.x + action.float() - 1).clamp(0, self.width - 1)
        return before, self.observe()


def main():
    torch.manual_seed(0)
    world, icm = CorridorWorld(16), ICM(8, 12, 3)
    for t in range(5):
        action = torch.randint(0, 3, (16,))
        state, following = world.step(action)
        bonus = icm.bonus(state, following, action)
        print(t, round(bonus.mean().item(), 4), icm.learn(state, following, action))


if __name__ == "__main__":
    main()
