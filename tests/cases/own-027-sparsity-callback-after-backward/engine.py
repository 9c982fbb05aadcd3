class Callback:
    def extra_loss(self, outputs):
        return 0.0

    def after_backward(self, outputs):
        pass


class Engine:
    def __init__(self, model, optimizer, callbacks=()):
        self.model, self.optimizer, self.callbacks = model, optimizer, list(callbacks)

    def forward_backward(self, batch):
        outputs = self.model(batch)
        loss = outputs["loss"] + sum(c.extra_loss(outputs) for c in self.callbacks)
        loss.backward()
        for callback in self.callbacks:
            callback.after_backward(outputs)
        return loss

    def run(self, batches):
        for number, batch in enumerate(batches):
            self.optimizer.zero_grad()
            loss = self.forward_backward(batch)
            self.optimizer.step()
            print(f"{number}: {loss.item():.4f}")
