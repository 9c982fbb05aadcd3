# In[1]:
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(1)

# In[2]: toy data, two rings
n = 120
r = torch.cat([torch.full((n // 2,), 1.0), torch.full((n // 2,), 2.0)])
phi = 6.28 * torch.rand(n)
X = torch.stack([r * phi.cos(), r * phi.sin()], 1) + 0.05 * torch.randn(n, 2)
Y = (r > 1.5).long()

# In[3]:
class Net(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.fc1 = nn.Linear(d_in, 32)
        self.bn = nn.BatchNorm1d(32)
        self.fc2 = nn.Linear(32, d_out)

    def forward(self, x):
        x = torch.relu(self.bn(self.fc1(x)))
        return self.fc2(x)


encoder, classifier = Net(2, 8), Net(8, 2)

# In[4]:
encoder.train()
H = encoder(X)
print("features:", H.shape)

# In[5]:
params = [p for m in (encoder, classifier) for p in m.parameters()]
optimizer = optim.Adam(params, lr=1e-2)
criterion = nn.CrossEntropyLoss()
batch_size = 30
for epoch in range(3):
    perm = torch.randperm(n)
    running = 0.0
    for i in range(0, n, batch_size):
        idx = perm[i : i + batch_size]
        optimizer.zero_grad()
        out = classifier(H[idx])
        loss = criterion(out, Y[idx])
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(epoch, running)

# In[6]:
encoder.eval(), classifier.eval()
with torch.no_grad():
    print("accuracy", (classifier(encoder(X)).argmax(1) == Y).float().mean().item())
