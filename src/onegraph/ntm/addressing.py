"""Where the heads look and what they do there, as pure functions of one time step.

Equation numbers are those of Graves, Wayne and Danihelka, "Neural Turing Machines" (2014,
arXiv:1410.5401). All heads are addressed at once. Sizes: B samples, N memory rows ("slots") of W
numbers, H heads of which the last write, S = 2 · range + 1 shifts.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Added to the squared length of a memory row, and of a key, inside the root. It decides what a
# blank row is: against a row of W = 20 entries of 1e-6 a key of all ones has cosine 0.045; with
# 1e-12 it would be 0.976, and blank rows would look like a pattern that the controller can ask for.
COSINE_EPSILON = 1e-8
# Added to a weighting before its logarithm: a weight of 0 has finite gradients.
LOG_EPSILON = 1e-12
_NOTHING = nullcontext()


class HeadParams(NamedTuple):
    """What the heads are told at one time step, activated and ready for use.

    Args:
        key: (B, H, W), what to look for.
        strength: (B, H, 1), β > 0, how sharply.
        gate: (B, H, 1), g in (0, 1): 1 takes the looked-up weighting, 0 the previous one.
        shift: (B, H, S), positive and summing to 1: entry j moves the weighting on by range - j
            slots, so the first entry is the farthest step forward.
        sharpen: (B, H, 1), γ ≥ 1.
        erase: (B, heads that write, W), in (0, 1).
        add: (B, heads that write, W).
    """

    key: Tensor
    strength: Tensor
    gate: Tensor
    shift: Tensor
    sharpen: Tensor
    erase: Tensor
    add: Tensor


def count_head_outputs(heads: int, write_heads: int, width: int, shift_range: int) -> int:
    """How many numbers a controller must emit a sample for `activate` to read."""
    return heads * (width + 4 + 2 * shift_range) + write_heads * 2 * width


def activate(
    raw: Tensor, heads: int, write_heads: int, width: int, *, clip: float | None, tanh: bool
) -> HeadParams:
    """Read a controller's numbers as head parameters, each brought into its range.

    The first numbers are a (B, H, P) block, each row [key, strength, sharpen, gate, shift]; those
    after it a (B, heads that write, 2W) block, each row [erase, add].

    Args:
        raw: (B, `count_head_outputs`).
        clip: the numbers are clamped to ±clip first; None leaves them.
        tanh: whether key and add are squashed to (-1, 1).
    """
    if clip is not None:
        raw = raw.clamp(-clip, clip)
    written = write_heads * 2 * width
    addressed, changes = raw.split((raw.shape[-1] - written, written), -1)
    row = addressed.shape[-1] // heads
    addressed = addressed.view(raw.shape[0], heads, row)
    shifts = row - width - 3
    key, positive, gate, shift = addressed.split((width, 2, 1, shifts), -1)
    strength, sharpen = F.softplus(positive).split(1, -1)
    erase, add = changes.view(raw.shape[0], write_heads, 2 * width).split(width, -1)
    if tanh:
        key, add = key.tanh(), add.tanh()
    return HeadParams(
        key, strength, gate.sigmoid(), shift.softmax(-1), 1 + sharpen, erase.sigmoid(), add
    )


def content(memory: Tensor, key: Tensor, strength: Tensor) -> Tensor:
    """Equations 5 and 6: softmax over the slots of β · cos(key, row).

    The cosine is u·v / (√(|u|² + ε) √(|v|² + ε)) with ε = `COSINE_EPSILON`.

    Args:
        memory: (B, N, W).
        key: (B, H, W).
        strength: (B, H, 1).

    Returns:
        (B, H, N).
    """
    # β and the key's length are applied to the key, which is smaller than the scores.
    scale = strength * ((key * key).sum(-1, keepdim=True) + COSINE_EPSILON).rsqrt()
    row_scale = ((memory * memory).sum(-1) + COSINE_EPSILON).rsqrt()
    scores = torch.bmm(key * scale, memory.transpose(1, 2)) * row_scale.unsqueeze(1)
    return scores.softmax(-1)


def interpolate(previous: Tensor, found: Tensor, gate: Tensor) -> Tensor:
    """Equation 7: g · found + (1 - g) · previous; never negative where its arguments are not.

    Args:
        previous, found: (B, H, N).
        gate: (B, H, 1).
    """
    return torch.lerp(previous, found, gate)


def shift(weighting: Tensor, taps: Tensor) -> Tensor:
    """Equation 8: circular convolution; never negative where its arguments are not.

    Args:
        weighting: (B, H, N).
        taps: (B, H, S) with S odd; entry j moves the weighting on by (S - 1) / 2 - j slots. The
            range may exceed N: the weighting goes round.
    """
    batch, heads, slots = weighting.shape
    size = taps.shape[-1]
    reach = size // 2
    if reach <= slots:
        parts = (weighting[..., slots - reach :], weighting, weighting[..., :reach])
        padded = torch.cat(parts, -1)
    else:
        rounds = -(-reach // slots)
        first = rounds * slots - reach
        padded = weighting.repeat(1, 1, 2 * rounds + 1)[..., first : first + slots + 2 * reach]
    windows = padded.view(batch * heads, slots + 2 * reach).unfold(-1, size, 1)
    return torch.bmm(windows, taps.reshape(batch * heads, size, 1)).view(batch, heads, slots)


def sharpen(weighting: Tensor, exponent: Tensor) -> Tensor:
    """Equation 9: w^γ / Σ w^γ, as the softmax over the slots of γ · log(w + `LOG_EPSILON`).

    Powers underflow (at γ = 60 a flat weighting over 128 slots sums to 0); logarithms do not.

    Args:
        weighting: (B, H, N), not negative.
        exponent: (B, H, 1).
    """
    return (exponent * (weighting + LOG_EPSILON).log()).softmax(-1)


def address(memory: Tensor, weightings: Tensor, params: HeadParams) -> Tensor:
    """Equations 5 to 9 for all heads on one memory; returns the new weightings, (B, H, N)."""
    found = content(memory, params.key, params.strength)
    gated = interpolate(weightings, found, params.gate)
    return sharpen(shift(gated, params.shift), params.sharpen)


def read(memory: Tensor, weightings: Tensor) -> Tensor:
    """Equation 2: r = Σ_i w(i) M(i), (B, R, W) for the weightings (B, R, N) of R reading heads."""
    return torch.bmm(weightings, memory)


def write(memory: Tensor, weightings: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Equations 3 and 4: M(i) · Π_h (1 - w_h(i) e_h) + Σ_h w_h(i) a_h; all erase, then all add.

    As in the paper the order of the heads makes no difference.

    Args:
        memory: (B, N, W).
        weightings: (B, heads that write, N).
        erase, add: (B, heads that write, W).

    Returns:
        The memory after writing, (B, N, W); the one before is untouched.
    """
    columns = weightings.transpose(1, 2)
    one = memory.new_ones(())
    if erase.shape[1] == 1:
        kept = memory * torch.baddbmm(one, columns, erase, alpha=-1)
    else:
        kept = memory
        for column, row in zip(columns.split(1, -1), erase.split(1, 1), strict=True):
            kept = kept * torch.baddbmm(one, column, row, alpha=-1)
    return torch.baddbmm(kept, columns, add)


def advance(
    memory: Tensor,
    weightings: Tensor,
    raw: Tensor,
    read_heads: int,
    *,
    clip: float | None,
    tanh: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """One time step of the memory, a pure function: address all heads, then read, then write.

    Args:
        memory: (B, N, W), M(t-1).
        weightings: (B, H, N), the reading heads before the writing ones.
        raw: (B, `count_head_outputs`), what the controller emitted; brought to the memory's type.
        read_heads: how many of the heads read.
        clip, tanh: see `activate`.

    Returns:
        M(t) (B, N, W), the new weightings (B, H, N), and what was read (B, R, W).
    """
    heads = weightings.shape[1]
    write_heads = heads - read_heads
    if raw.dtype != memory.dtype:
        raw = raw.to(memory.dtype)
    params = activate(raw, heads, write_heads, memory.shape[2], clip=clip, tanh=tanh)
    weightings = address(memory, weightings, params)
    reading, writing = weightings.split((read_heads, write_heads), 1)
    reads = read(memory, reading)
    return write(memory, writing, params.erase, params.add), weightings, reads


def exactly(device: torch.device) -> AbstractContextManager[object]:
    """A block in which autocast is off: addressing needs float32, whatever surrounds it."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return _NOTHING
