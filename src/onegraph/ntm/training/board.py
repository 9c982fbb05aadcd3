"""What TensorBoard shows of a run: the curve as scalars, the memory and weightings as pictures."""

from __future__ import annotations

import threading
from pathlib import Path

from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from onegraph.ntm.training.evaluate import Trace


class Board:
    """Event files in a folder.

    Args:
        folder: where they go.
        step: after which step the run goes on; what an earlier process told of later ones is void.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._hook = threading.excepthook
        threading.excepthook = self._note
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def point(self, point: dict[str, float], rate: float) -> None:
        """A point of the learning curve, and steps a second."""
        step = int(point["step"])
        for name in ("loss", "bits_per_sequence", "bit_error_rate", "gradient_norm"):
            self.writer.add_scalar(f"train/{name}", point[name], step)
        self.writer.add_scalar("train/steps_per_second", rate, step)

    def pictures(self, step: int, trace: Trace) -> None:
        """The memory after a sequence, and the weightings over it: time runs to the right."""
        weightings = {"read": trace.read_weightings, "write": trace.write_weightings}
        for name, found in weightings.items():
            self._picture(f"weightings/{name}", found.t().clamp(0, 1), step)
        self._picture("memory", _stretched(trace.memory), step)
        self.writer.flush()

    def _picture(self, name: str, values: Tensor, step: int) -> None:
        # Four pixels a number, so that a number is seen.
        large = values.repeat_interleave(4, 0).repeat_interleave(4, 1)
        self.writer.add_image(name, large.unsqueeze(0), step)

    def _note(self, found: threading.ExceptHookArgs) -> None:
        # The writer's thread keeps an error of the disk, and the next call raises it.
        ours = type(found.thread).__module__.startswith("tensorboard.")
        if not (ours and issubclass(found.exc_type, OSError)):
            self._hook(found)

    def close(self) -> None:
        """Write what is left."""
        try:
            self.writer.close()
        finally:
            threading.excepthook = self._hook


def _stretched(values: Tensor) -> Tensor:
    """Values brought to 0 to 1, the largest and the smallest at the ends."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp(min=1e-12)
