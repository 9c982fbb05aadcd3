import torch
from torch import nn
from torch.distributions import Categorical


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(5, 16)
        self.gru = nn.GRUCell(16, 16)
        self.pi, self.v = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x, h):
        h = self.gru(torch.relu(self.enc(x)), h)
        return self.pi(h), self.v(h).squeeze(-1), h


def main(n_envs=4, T=5, updates=6):
    torch.manual_seed(6)
    net = Net()
    opt = torch.optim.RMSprop(net.parameters(), lr=7e-4)
    hx = torch.zeros(n_envs, 16)
    done = torch.zeros(n_envs)
    obs = torch.randn(n_envs, 5)

    def env_step(a):
        r = (obs[:, 0] > 0).float() * (a == 1).float()
        return torch.randn(n_envs, 5), r, (torch.rand(n_envs) < 0.1).float()

    def act():
        nonlocal hx, obs, done
        mask = (1.0 - done).unsqueeze(1)
        logits, value, hx = net(obs, hx * mask)
        dist = Categorical(logits=logits)
        a = dist.sample()
        obs, r, done = env_step(a)
        return dist.log_prob(a), dist.entropy(), value, r

    def rollout():
        return zip(*(act() for _ in range(T)))

    def returns(rewards):
        with torch.no_grad():
            _, R, _ = net(obs, hx * (1 - done).unsqueeze(1))
        out = []
        for r in reversed(rewards):
            R = r + 0.99 * R
            out.insert(0, R)
        return torch.stack(out)

    def learn(logps, ents, values, rewards):
        R = returns(rewards)
        adv = R - torch.stack(values)
        loss = -(torch.stack(logps) * adv.detach()).mean() + 0.5 * adv.pow(2).mean()
        loss = loss - 0.01 * torch.stack(ents).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        return loss.item()

    for u in range(updates):
        print(u, learn(*rollout()))


main()
