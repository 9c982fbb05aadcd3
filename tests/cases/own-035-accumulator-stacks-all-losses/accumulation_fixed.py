class Accumulator:
    """Steps the optimiser once for every `every` micro-batches."""

    def __init__(self, optimizer, every):
        self.optimizer, self.every = optimizer, every
        self.losses = []

    def add(self, loss):
        self.losses.append(loss.detach())
        (loss / self.every).backward()
        if len(self.losses) == self.every:
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(f"update: {sum(float(v) for v in self.losses) / self.every:.4f}")
            self.losses.clear()
