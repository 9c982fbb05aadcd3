from dataclasses import dataclass, field

import torch
import torch.nn.functional as F


@dataclass
class Rollout:
    obs: list = field(default_factory=list)
    act: list = field(default_factory=list)
    logp: list = field(default_factory=list)
    rew: list = field(default_factory=list)
    val: list = field(default_factory=list)
    adv: torch.Tensor = None
    ret: torch.Tensor = None

    def add(self, obs, act, logp, rew, val):
        for store, item in zip((self.obs, self.act, self.logp, self.rew, self.val), (obs, act, logp, rew, val)):
            store.append(item)

    def finish(self, gamma=0.9):
        R, out = torch.zeros_like(self.rew[0]), []
        for r in reversed(self.rew):
            R = r + gamma * R
            out.insert(0, R)
        self.ret = torch.cat(out)
        self.obs, self.act = torch.cat(self.obs), torch.cat(self.act)
        self.logp, self.val = torch.cat(self.logp), torch.cat(self.val)
        self.adv = self.ret - self.val
        self.adv = (self.adv - self.adv.mean()) / (self.adv.std() + 1e-8)
        return self


class PPO:
    def __init__(self, net, clip=0.2, epochs=4, lr=3e-3):
        self.net, self.clip, self.epochs = net, clip, epochs
        self.opt = torch.optim.Adam(net.parameters(), lr=lr, eps=1e-5)

    def losses(self, roll):
        dist, value = self.net(roll.obs)
        ratio = torch.exp(dist.log_prob(roll.act) - roll.logp)
        surrogate = torch.min(ratio * roll.adv, ratio.clamp(1 - self.clip, 1 + self.clip) * roll.adv)
        return -surrogate.mean(), F.mse_loss(value, roll.ret), dist.entropy().mean()

    def update(self, roll):
        for _ in range(self.epochs):
            pi_loss, v_loss, entropy = self.losses(roll)
            loss = pi_loss + 0.5 * v_loss - 0.01 * entropy
            self.opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
            self.opt.step()
        return loss.item()
