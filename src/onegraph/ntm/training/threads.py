"""How many threads a step may use."""

from __future__ import annotations

import torch


def use_threads(count: int) -> None:
    """Let torch use so many; with more than one, tiny steps spend their time on handing over."""
    torch.set_num_threads(count)
