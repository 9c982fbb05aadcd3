import torch


class BaseTrainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)

    def compute_loss(self, batch):
        raise NotImplementedError

    def training_step(self, batch):
        loss = self.compute_loss(batch)
        loss.backward()
        return loss

    def fit(self, batches):
        for n, batch in enumerate(batches):
            self.opt.zero_grad()
            loss = self.training_step(batch)
            self.opt.step()
            print(f"[{type(self).__name__}] {n}: {float(loss):.4f}")
