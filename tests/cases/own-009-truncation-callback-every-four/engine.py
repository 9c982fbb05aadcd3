class Trainer:
    """A training loop that knows nothing about the model; callbacks do the rest."""

    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks
        self.state = None
        self.batch = 0
        self.loss = None

    def emit(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def training_step(self, data):
        self.loss = self.model.loss(data, self.state)
        self.optimizer.zero_grad()
        self.loss.backward()
        self.optimizer.step()

    def fit(self, batches):
        for self.batch, data in enumerate(batches, start=1):
            self.training_step(data)
            self.emit("on_batch_end")
