# %% imports
import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
np.random.seed(0)

# %% data: noisy sine as a stand-in for the closing price
WINDOW, BATCH = 10, 16
series = np.sin(np.arange(0, 40, 0.1)) + 0.1 * np.random.randn(400)
X = np.stack([series[i : i + WINDOW] for i in range(len(series) - WINDOW)])
y = series[WINDOW:]
X = torch.tensor(X, dtype=torch.float32).unsqueeze(-1)
y = torch.tensor(y, dtype=torch.float32).unsqueeze(-1)
X_train, y_train, X_val, y_val = X[:320], y[:320], X[320:352], y[320:352]


# %% model
class StockLSTM(nn.Module):
    def __init__(self, hidden_size=24, num_layers=2):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden_size, num_layers, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(hidden_size, 1)

    def forward(self, x, hidden=None):
        out, hidden = self.lstm(x, hidden)
        return self.fc(out[:, -1]), hidden


model = StockLSTM()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

# %% training
for epoch in range(3):
    model.train()
    hidden = None
    for i in range(0, len(X_train), BATCH):
        xb, yb = X_train[i : i + BATCH], y_train[i : i + BATCH]
        optimizer.zero_grad()
        pred, hidden = model(xb, hidden)
        loss = criterion(pred, yb)
        loss.backward()
        optimizer.step()
        # start the next batch from here without going back further
        hidden = tuple([each for each in hidden])
    scheduler.step()
    model.eval()
    with torch.no_grad():
        val_pred, _ = model(X_val)
        print(epoch, loss.item(), criterion(val_pred, y_val).item())
