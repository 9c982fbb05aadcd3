import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
actor_optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)

for step in range(3):
    state, reward = torch.randn(4, 8), torch.randn(4, 1)
    value = critic(actor(state))
    critic_loss = nn.functional.mse_loss(value, reward)
    actor_loss = -value.mean()
    critic_optimizer.zero_grad()
    critic_loss.backward(retain_graph=True)
    critic_optimizer.step()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    print(step, critic_loss.item(), actor_loss.item())
