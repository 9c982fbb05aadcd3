"""Controllers that look at 2D attention maps: maps of any size, some or all of them missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MapKind: TypeAlias = Literal["probabilities", "scores"]


class AttentionFusion(nn.Module):
    """Turns several attention maps of one sample into one vector that knows where they look.

    Each map is brought to one grid (area averages down, bilinear up) with its mass kept, and
    scaled so that a map which is uniform and sums to 1 is 1 everywhere, whatever its size. A 1×1
    convolution a source takes it to a common width; the mean over the sources present goes
    through a convolution and a residual block; what is pooled from it, on a small grid and as the
    expected position of each channel, is layer-normalised. A sample without any map gets a
    learned vector. No step depends on other samples or other time steps.

    Maps that stay the same over a sequence are fused once, before the loop; maps that change are
    fused for all steps in one call, time folded into the batch.

    Args:
        channels: how many channels the map of each source has, by the source's name.
        out_channels: channels after the convolutions.
        width: channels that all sources are taken to.
        grid: height and width of the common grid.
        pool: height and width of the small grid that is pooled to.
        kind: "probabilities" are not negative, and their mass matters; "scores" are any numbers,
            made probabilities by a softmax over all places of each channel.
        level: whether what is made of each source is normalised before the mean, so that a sharp
            map does not drown a faint one; masses are then not told apart.
    """

    places: Tensor

    def __init__(
        self,
        channels: Mapping[str, int],
        out_channels: int = 32,
        width: int = 32,
        *,
        grid: int = 16,
        pool: int = 4,
        kind: MapKind = "probabilities",
        level: bool = False,
    ) -> None:
        super().__init__()
        if kind not in ("probabilities", "scores"):
            raise ValueError(f"kind is {kind!r}; it must be 'probabilities' or 'scores'")
        if not 1 <= pool <= grid:
            raise ValueError(f"a {grid}×{grid} grid cannot be pooled to {pool}×{pool}")
        self.channels = dict(channels)
        self.grid, self.pool, self.kind = grid, pool, kind
        self.output_size = out_channels * (pool * pool + 2)
        self.stems = nn.ModuleDict(
            {name: nn.Conv2d(count, width, 1) for name, count in self.channels.items()}
        )
        self.levels = nn.ModuleDict(
            {name: _group_norm(width) if level else nn.Identity() for name in self.channels}
        )
        self.mix = nn.Conv2d(width, out_channels, 3, padding=1)
        self.block = ResidualBlock(out_channels)
        self.norm = _group_norm(out_channels)
        self.output_norm = nn.LayerNorm(self.output_size)
        self.absent = nn.Parameter(torch.zeros(self.output_size))
        along = (torch.arange(grid) + 0.5) * (2 / grid) - 1
        places = torch.cartesian_prod(along, along)
        self.register_buffer("places", places, persistent=False)

    def forward(
        self,
        maps: Mapping[str, Tensor | None],
        present: Mapping[str, Tensor | None] | None = None,
        *,
        batch: int | None = None,
    ) -> Tensor:
        """Fuse the maps of a batch.

        Args:
            maps: for each source (B, its channels, height, width), or (T, B, its channels,
                height, width) for a map a step; None or left out where no sample has it.
            present: for each source which samples have it, (B,) or (T, B) of bool; None or left
                out for all. What an absent map holds is not looked at.
            batch: B, needed only where no map is given.

        Returns:
            (B, `output_size`), or (T, B, `output_size`) if anything is given a step.

        Raises:
            ValueError: a map does not fit what was declared or the other maps.
        """
        given = {name: attention for name, attention in maps.items() if attention is not None}
        masks = {name: mask for name, mask in (present or {}).items() if mask is not None}
        stepwise = self._check(given, masks, batch)
        stems, weights = [], []
        for name, attention in given.items():
            # From here on everything has a time dimension, of 1 where time does not matter.
            attention = attention if attention.dim() == 5 else attention.unsqueeze(0)
            here = masks.get(name, attention.new_ones(attention.shape[1]))
            here = here.to(attention.device, torch.bool)
            here = (here if here.dim() == 2 else here.unsqueeze(0))[..., None, None, None]
            looked_at = here if len(attention) > 1 else here.any(0, keepdim=True)
            placed = self.place(attention.masked_fill(~looked_at, 0).flatten(0, 1))
            stem = self.levels[name](self.stems[name](placed)).unflatten(0, attention.shape[:2])
            stems.append(stem * here)
            weights.append(here.long())
        if not stems:
            return self.absent.expand(batch or 0, -1) + self._idle(given)
        count = _sum(weights)
        mean = _sum(stems) / count.clamp(min=1)
        fused = self._pool(mean.flatten(0, 1)).unflatten(0, mean.shape[:2])
        fused = torch.where(count.flatten(2) > 0, fused, self.absent) + self._idle(given)
        return fused if stepwise else fused.squeeze(0)

    def _idle(self, given: Mapping[str, Tensor]) -> Tensor:
        """Zero, as a function of the parameters that no given map is taken through.

        They then get gradients of zero in place of none, which several processes that train
        together could not agree on.
        """
        parts = [
            part
            for each in (self.stems, self.levels)
            for name, part in each.items()
            if name not in given
        ]
        if not given:
            parts += [self.mix, self.block, self.norm, self.output_norm]
        idle = [each.sum() for part in parts for each in part.parameters()]
        return 0 * sum(idle, self.absent.new_zeros(()))

    def place(self, attention: Tensor) -> Tensor:
        """Bring maps (n, C, height, width) to the grid, (n, C, grid, grid), their mass kept.

        The mean over the grid is the sum over the map.
        """
        attention = attention.to(self.places.dtype)
        height, width = attention.shape[-2:]
        if self.kind == "scores":
            # A map that is masked everywhere has no mass.
            nowhere = (attention == -math.inf).all(-1, keepdim=True).all(-2, keepdim=True)
            scores = attention.masked_fill(nowhere, 0).flatten(2).softmax(-1)
            attention = scores.unflatten(-1, (height, width)).masked_fill(nowhere, 0)
        small = (min(height, self.grid), min(width, self.grid))
        placed = F.adaptive_avg_pool2d(attention, small)
        if small != (self.grid, self.grid):
            placed = F.interpolate(
                placed, size=(self.grid, self.grid), mode="bilinear", align_corners=False
            )
        # Of absolute values, so that a map with negative entries stays finite.
        mass = attention.abs().sum((-2, -1), keepdim=True)
        mean = placed.abs().mean((-2, -1), keepdim=True)
        return placed * (mass / mean.clamp(min=torch.finfo(mean.dtype).tiny))

    def _pool(self, x: Tensor) -> Tensor:
        """What the convolutions see, as one vector a sample."""
        x = self.norm(self.block(self.mix(x)))
        pooled = F.adaptive_avg_pool2d(x, self.pool).flatten(1)
        positions = x.flatten(2).softmax(-1).to(self.places.dtype) @ self.places
        fused: Tensor = self.output_norm(torch.cat((pooled, positions.flatten(1)), -1))
        return fused

    def _check(
        self, maps: Mapping[str, Tensor], masks: Mapping[str, Tensor], batch: int | None
    ) -> bool:
        """Whether anything is given a step; see `forward` for what is refused."""
        declared = ", ".join(f"{name} {count}" for name, count in self.channels.items())
        for name in (*maps, *masks):
            if name not in self.channels:
                raise ValueError(f"there is no source {name!r}; declared are: {declared}")
        if not maps and batch is None:
            raise ValueError("no map is given, so the batch size must be")
        sizes = {} if batch is None else {"the rest": batch}
        steps = {}
        for name, attention in maps.items():
            if attention.dim() not in (4, 5) or 0 in attention.shape[-2:]:
                raise ValueError(
                    f"{name} is {tuple(attention.shape)}; a map is (batch, channels, height, "
                    f"width), with time before the batch if it changes"
                )
            if attention.shape[-3] != self.channels[name]:
                raise ValueError(
                    f"{name} has {attention.shape[-3]} channels; declared are: {declared}"
                )
            sizes[name] = attention.shape[-4]
            if attention.dim() == 5:
                steps[name] = len(attention)
            if name in masks:
                sizes[f"the presence of {name}"] = masks[name].shape[-1]
                if masks[name].dim() == 2:
                    steps[f"the presence of {name}"] = len(masks[name])
        for what, found in (("batch sizes", sizes), ("numbers of steps", steps)):
            if len(set(found.values())) > 1:
                told = ", ".join(f"{name} has {size}" for name, size in found.items())
                raise ValueError(f"the {what} differ: {told}")
        return bool(steps)


class ResidualBlock(nn.Module):
    """Two convolutions beside the identity; the last begins at zero, so the block begins as it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = _group_norm(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = _group_norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)
        if self.conv2.bias is not None:
            nn.init.zeros_(self.conv2.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) to the same shape."""
        inner: Tensor = self.conv1(F.relu(self.norm1(x)))
        inner = self.conv2(F.relu(self.norm2(inner)))
        return x + inner


class ControllerOutput(NamedTuple):
    """What one read head and one write head are told, all as the last layer gives it.

    The memory activates: erase by a sigmoid, strengths by something positive, add as it likes.

    Args:
        read_key, write_key, erase, add: (B, mem_dim).
        read_strength, write_strength: (B, 1); one and the same tensor where they are tied.
    """

    read_key: Tensor
    write_key: Tensor
    erase: Tensor
    add: Tensor
    read_strength: Tensor
    write_strength: Tensor


class NTMController(nn.Module):
    """Fuses two 2D attention maps with a representation into what a memory's heads are told.

    >>> controller = NTMController()
    >>> reps, attn_hier = torch.randn(4, 8, 128), torch.rand(4, 16, 8, 4)
    >>> controller(reps, attn_hier).read_key.shape
    torch.Size([4, 128])

    Args:
        d_model: width of the representations.
        mem_dim: width of a memory slot.
        hidden_dim, n_layers: of the MLP, which has ReLUs between its layers.
        fuse_in_channels: the common width that both maps are taken to.
        fuse_out_channels: channels after the convolutions.
        intra_channels, hier_channels: channels of each map; None: half of fuse_in_channels.
        tie_strength: one strength for both heads, so that the MLP has 4 · mem_dim + 1 outputs in
            place of 4 · mem_dim + 2.
        kind: what the maps hold, see `AttentionFusion`.
    """

    def __init__(
        self,
        d_model: int = 128,
        mem_dim: int = 128,
        hidden_dim: int = 256,
        n_layers: int = 3,
        fuse_in_channels: int = 32,
        fuse_out_channels: int = 32,
        intra_channels: int | None = None,
        hier_channels: int | None = None,
        tie_strength: bool = False,
        *,
        kind: MapKind = "probabilities",
    ) -> None:
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"n_layers is {n_layers}; it must be at least 1")
        self.d_model = d_model
        half = fuse_in_channels // 2
        self.intra_channels = half if intra_channels is None else intra_channels
        self.hier_channels = half if hier_channels is None else hier_channels
        self.tie_strength = tie_strength
        self.fusion = AttentionFusion(
            {"attn_hier": self.hier_channels, "attn_intra": self.intra_channels},
            fuse_out_channels,
            fuse_in_channels,
            kind=kind,
        )
        self.norm = nn.LayerNorm(d_model)
        self.head_sizes = [mem_dim] * 4 + [1] * (1 if tie_strength else 2)
        layers: list[nn.Module] = []
        size = self.fusion.output_size + d_model
        for _ in range(n_layers - 1):
            layers += [nn.Linear(size, hidden_dim), nn.ReLU()]
            size = hidden_dim
        self.mlp = nn.Sequential(*layers, nn.Linear(size, sum(self.head_sizes)))

    def fuse(
        self,
        attn_hier: Tensor | None = None,
        attn_intra: Tensor | None = None,
        *,
        hier_present: Tensor | None = None,
        intra_present: Tensor | None = None,
        batch: int | None = None,
    ) -> Tensor:
        """What `forward` makes of the maps, to be made once where they stay the same.

        Args:
            attn_hier, attn_intra: as for `forward`.
            hier_present, intra_present: as for `forward`.
            batch: B, needed only where no map is given.

        Returns:
            (B, F), or (T, B, F) for maps given a step.

        Raises:
            ValueError: a map has other channels than declared; both are named.
        """
        maps = {"attn_hier": attn_hier, "attn_intra": attn_intra}
        for name, attention in maps.items():
            declared = self.fusion.channels[name]
            if attention is None or attention.dim() < 4 or attention.shape[-3] == declared:
                continue
            raise ValueError(
                f"{name} has {attention.shape[-3]} channels, but this controller was made with "
                f"hier_channels={self.hier_channels} and intra_channels={self.intra_channels}"
            )
        present = {"attn_hier": hier_present, "attn_intra": intra_present}
        fused: Tensor = self.fusion(maps, present, batch=batch)
        return fused

    def forward(
        self,
        reps: Tensor,
        attn_hier: Tensor | None = None,
        attn_intra: Tensor | None = None,
        *,
        hier_present: Tensor | None = None,
        intra_present: Tensor | None = None,
        fused: Tensor | None = None,
    ) -> ControllerOutput:
        """Say what the heads are told.

        Everything may also be given for T steps at once, with T before the batch.

        Args:
            reps: (B, places, d_model), averaged over the places.
            attn_hier: (B, hier_channels, height, width) of any size; None: no sample has one.
            attn_intra: (B, intra_channels, height, width), likewise.
            hier_present, intra_present: (B,) of bool, which samples have the map; None: all.
            fused: what `fuse` returned for these maps, in place of them.
        """
        if reps.dim() < 3 or reps.shape[-1] != self.d_model:
            raise ValueError(
                f"reps is {tuple(reps.shape)}; it must be (batch, places, {self.d_model})"
            )
        if fused is None:
            fused = self.fuse(
                attn_hier,
                attn_intra,
                hier_present=hier_present,
                intra_present=intra_present,
                batch=reps.shape[-3],
            )
        elif attn_hier is not None or attn_intra is not None:
            raise ValueError("give the maps or what fuse() made of them, not both")
        base = self.norm(reps.mean(-2))
        lead = torch.broadcast_shapes(fused.shape[:-1], base.shape[:-1])
        joined = torch.cat((fused.expand(*lead, -1), base.expand(*lead, -1)), -1)
        read_key, write_key, erase, add, *strengths = self.mlp(joined).split(self.head_sizes, -1)
        return ControllerOutput(read_key, write_key, erase, add, strengths[0], strengths[-1])


def _sum(parts: list[Tensor]) -> Tensor:
    """Their sum, each broadcast to the widest."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _group_norm(channels: int) -> nn.GroupNorm:
    """Groups of equal size, eight at most."""
    return nn.GroupNorm(math.gcd(channels, 8), channels)
