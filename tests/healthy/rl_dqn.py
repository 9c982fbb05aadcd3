"""Double DQN with a replay memory, a frozen target network and periodic hard updates."""

import random
from collections import deque, namedtuple

import torch
from torch import nn

Transition = namedtuple("Transition", "state action next_state reward")


def q_net():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4))


MOVES = torch.tensor([[0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2]])


def env_step(state, action):
    new = (state + MOVES[action]).clamp(-1, 1)
    done = new.norm().item() < 0.15
    return (None if done else new), (1.0 if done else -0.05)


random.seed(15)
torch.manual_seed(15)
policy_net, target_net = q_net(), q_net()
target_net.load_state_dict(policy_net.state_dict())
target_net.requires_grad_(False)
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=3e-3, amsgrad=True)
memory = deque(maxlen=200)
criterion = nn.SmoothL1Loss()


def optimize_model():
    batch = Transition(*zip(*random.sample(memory, 24), strict=True))
    mask = torch.tensor([s is not None for s in batch.next_state])
    next_states = torch.stack([s for s in batch.next_state if s is not None])
    q = policy_net(torch.stack(batch.state)).gather(1, torch.tensor(batch.action).unsqueeze(1))
    next_values = torch.zeros(24)
    with torch.no_grad():
        best = policy_net(next_states).argmax(1, keepdim=True)
        next_values[mask] = target_net(next_states).gather(1, best).squeeze(1)
    loss = criterion(q.squeeze(1), torch.tensor(batch.reward) + 0.95 * next_values)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


steps, losses = 0, []
for _episode in range(15):
    state = 2 * torch.rand(2) - 1
    for _ in range(12):
        with torch.no_grad():
            greedy = policy_net(state).argmax().item()
        action = random.randrange(4) if random.random() < 0.9 * 0.99**steps else greedy
        next_state, reward = env_step(state, action)
        memory.append(Transition(state, action, next_state, reward))
        steps += 1
        if len(memory) >= 24:
            losses.append(optimize_model())
        if steps % 25 == 0:
            target_net.load_state_dict(policy_net.state_dict())
        if next_state is None:
            break
        state = next_state
print(steps, len(losses), losses[0].hex(), losses[-1].hex())
print("parameters", sum(p.double().sum() for p in policy_net.parameters()).item().hex())
