class KeepState:
    def on_batch_end(self, trainer):
        trainer.state = trainer.model.last_state


class TruncateState:
    """Truncated backpropagation: forget how the state came about, every few batches."""

    def __init__(self, every):
        self.every = every

    def on_batch_end(self, trainer):
        if trainer.batch % self.every == 0 and trainer.state is not None:
            trainer.state = trainer.state.detach()


class Report:
    def __init__(self, every):
        self.every = every

    def on_batch_end(self, trainer):
        if trainer.batch % self.every == 0:
            print(f"batch {trainer.batch}: {trainer.loss.item():.4f}")
