"""The whole system: encoders in and over segments, their maps fused, a memory carried along.

A document is a sequence of segments, a segment a row of tokens. Sizes: S segments, B samples, L
tokens a segment, d numbers a token, A attention heads, K segments that the upper encoder sees.
The parts stand in one order: the tokens of a segment attend to each other (the map of that is the
segment's *intra* map); their mean represents the segment; the last K segments attend to each other
(the *hierarchical* map); an `AttentionFusion` makes one vector of both maps; the controller of a
Neural Turing Machine sees that vector beside the representation, and takes one step a segment.

Order is in the maps alone, unless `positions` says otherwise: the encoders have no position
embeddings, so that a representation is that of a bag of tokens, and a map says where they stand.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from onegraph.ntm.cell import NTMCell, NTMState, active_steps, beside
from onegraph.ntm.fusion import AttentionFusion

MAPS = ("intra", "hier")
# What training begins with. A memory that is half erased at each segment holds nothing that a
# gradient could find; the vector of the maps, several times as long as the representation, would
# drown the name that a fact is looked up by; and a head that half stays where it was writes what
# it is told beside what the last segments left, and finds other facts there.
STRENGTH, ERASE, CLARITY, GATE = 10.0, -4.0, 3.0, 3.0


class HierarchicalState(NamedTuple):
    """What is carried from segment to segment, and from window to window; batch first throughout.

    Args:
        recent: (B, K - 1, d), what represented the last segments, the latest last.
        seen: (B, K - 1) of bool, false where the document has no such segment.
        memory: the Neural Turing Machine's own state.
    """

    recent: Tensor
    seen: Tensor
    memory: NTMState


class Encoded(NamedTuple):
    """What the encoders make of segments; no step of it depends on the memory.

    Args:
        tokens: (S, B, L, d), each token in the light of its segment.
        fused: (S, B, d + F), the segment's representation beside its fused maps.
        intra: (S, B, A · layers, L, L), row i what the token at place i attends to.
        hier: (S, B, A · layers, K, K), row i what segment i of the last K attends to, the
            segment itself being the last; zeros where the document has no such segment.
    """

    tokens: Tensor
    fused: Tensor
    intra: Tensor
    hier: Tensor


class HierarchicalOutput(NamedTuple):
    """The answers to a window of segments, and what they were made of.

    Args:
        classes: (S, B, classes), logits for each segment; None without that head.
        tokens: (S, B, L, token_classes), logits for each token; None without that head.
        intra, hier: the maps, see `Encoded`.
    """

    classes: Tensor | None
    tokens: Tensor | None
    intra: Tensor
    hier: Tensor


class HierarchicalNTM(nn.Module):
    """Reads documents segment by segment with a memory whose controller sees attention maps.

    >>> model = HierarchicalNTM(vocabulary=100, classes=7)
    >>> tokens = torch.randint(100, (24, 16, 8))
    >>> output, state = model(tokens)  # output.classes is (24, 16, 7)
    >>> output, state = model(tokens, state)  # goes on where the last call ended

    One call builds one graph. Documents too long for one graph go through in windows, the state
    cut between them::

        for window in windows((tokens, targets), 8):
            output, new = model(window.data[0], state)
            window.weigh(loss(output.classes, window.data[1])).backward()
            state = detach(new)

    or the encoders run once over all segments and only the memory in windows, with the graph
    split where the windows share the maps (`encode` and `remember` are the halves of a call; where
    tokens are answered too, split at ``encoded.tokens`` as well)::

        encoded, context = model.encode(tokens, state)
        memory = context.memory
        with split_at(encoded.fused) as leaf:
            for window in windows((encoded._replace(fused=leaf), targets), 8):
                output, memory = model.remember(window.data[0], memory)
                window.weigh(loss(output.classes, window.data[1])).backward()
                memory = detach(memory)
        state = detach(context._replace(memory=memory))

    A window that ends between a write and its read gives the write no gradient.

    Args:
        vocabulary: how many tokens there are.
        classes: how many logits a segment gets; None: that head is not made.
        token_classes: how many logits a token gets. They come after the whole segment has been
            seen, so they can tag tokens or fill blanks, not foretell the next token.
        d_model: d.
        heads, layers: of each encoder.
        reach: K, how many segments the upper encoder sees, this one included.
        maps: which maps the controller is shown: "intra", "hier", both or none. The parameters
            are the same in number whatever it is.
        positions: whether sinusoids of their places are added to the tokens.
        memory, controller, hidden_size, read_heads, write_heads, shift_range: see `NTMCell`.
        fused_channels, grid, pool: see `AttentionFusion`.
        options: the options of `NTMCell` that are named only.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int | None = None,
        token_classes: int | None = None,
        d_model: int = 32,
        heads: int = 2,
        layers: int = 1,
        reach: int = 8,
        *,
        maps: Collection[str] = MAPS,
        positions: bool = False,
        memory: tuple[int, int] = (32, 32),
        controller: str | nn.Module = "feedforward",
        hidden_size: int = 64,
        read_heads: int = 1,
        write_heads: int = 1,
        shift_range: int = 1,
        fused_channels: int = 8,
        grid: int = 4,
        pool: int = 4,
        **options: object,
    ) -> None:
        super().__init__()
        if not set(maps) <= set(MAPS):
            raise ValueError(f"maps is {tuple(maps)}; there are {' and '.join(MAPS)}")
        if reach < 1:
            raise ValueError(f"reach is {reach}; a segment sees at least itself")
        self.d_model, self.reach = d_model, reach
        self.maps, self.positions = frozenset(maps), positions
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.intra = MapEncoder(d_model, heads, layers)
        self.hier = MapEncoder(d_model, heads, layers)
        channels = dict.fromkeys(MAPS, heads * layers)
        self.fusion = AttentionFusion(
            channels,
            fused_channels,
            fused_channels,
            grid=grid,
            pool=pool,
            # Or the map of the tokens, sharp early on, drowns the faint one of the segments.
            level=True,
        )
        self.norm = nn.LayerNorm(d_model)
        self.cell = NTMCell(
            d_model + self.fusion.output_size,
            memory,
            controller,
            hidden_size,
            read_heads,
            write_heads,
            shift_range,
            **options,  # type: ignore[arg-type]
        )
        size = self.cell.output_size
        self.classify = None if classes is None else nn.Linear(size, classes)
        self.tag = None if token_classes is None else nn.Linear(d_model + size, token_classes)
        self._begin()

    def _begin(self) -> None:
        """Begin with heads that look up, sharply, and erase little, and a clear representation."""
        heads = self.cell.read_heads + self.cell.write_heads
        written = 2 * self.cell.write_heads * self.cell.width
        with torch.no_grad():
            self.norm.weight.fill_(CLARITY)
            bias = self.cell.heads.bias
            rows, changes = bias.split((len(bias) - written, written))
            # A row is [key, strength, sharpen, gate, shift].
            rows = rows.view(heads, -1)
            rows[:, self.cell.width] = STRENGTH
            rows[:, self.cell.width + 2] = GATE
            changes.view(self.cell.write_heads, 2, -1)[:, 0] = ERASE

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> HierarchicalState:
        """The state before a document's first segment; device and dtype as for `NTMCell`."""
        like = self.embedding.weight
        device = like.device if device is None else torch.device(device)
        size = (batch, self.reach - 1)
        return HierarchicalState(
            torch.zeros(*size, self.d_model, device=device, dtype=dtype or like.dtype),
            torch.zeros(size, device=device, dtype=torch.bool),
            self.cell.initial_state(batch, device, dtype),
        )

    def forward(
        self,
        tokens: Tensor,
        state: HierarchicalState | None = None,
        *,
        lengths: Tensor | list[int] | None = None,
        mask: Tensor | None = None,
        intra_present: Tensor | None = None,
        hier_present: Tensor | None = None,
    ) -> tuple[HierarchicalOutput, HierarchicalState]:
        """Read a window of segments.

        Args:
            tokens: (S, B, L) of whole numbers below the vocabulary's size.
            state: what an earlier call returned; None for the initial state.
            lengths: (B,), how many segments each sample has in this window. After them its state
                stays as it was, its logits are zero, and its tokens are not looked at.
            mask: (S, B, L) of bool, true where a token counts. What stands elsewhere is not looked
                at, and the logits of those tokens hold no meaning.
            intra_present, hier_present: (B,) or (S, B) of bool, who has that map; None: all.

        Returns:
            The output, and the state after the window.

        Raises:
            ValueError: a shape does not fit.
        """
        state = self._checked(tokens, state)
        present = (intra_present, hier_present)
        encoded, context = self.encode(tokens, state, lengths, mask, *present)
        output, memory = self.remember(encoded, state.memory, lengths)
        return output, context._replace(memory=memory)

    def encode(
        self,
        tokens: Tensor,
        state: HierarchicalState | None = None,
        lengths: Tensor | list[int] | None = None,
        mask: Tensor | None = None,
        intra_present: Tensor | None = None,
        hier_present: Tensor | None = None,
    ) -> tuple[Encoded, HierarchicalState]:
        """All that does not depend on the memory, for all segments at once; see `forward`.

        The state comes back with the memory as it was.
        """
        state = self._checked(tokens, state)
        steps, batch, length = tokens.shape
        active = active_steps(steps, batch, lengths, None, tokens.device)
        if active is not None:
            tokens = tokens.masked_fill(~active.unsqueeze(-1), 0)
        counted = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
        if tuple(counted.shape) != (steps, batch, length):
            raise ValueError(f"mask is {tuple(counted.shape)}; tokens is {(steps, batch, length)}")
        x = self.embedding(tokens.masked_fill(~counted, 0))
        if self.positions:
            x = x + sinusoids(length, self.d_model).to(x)
        x, intra = self.intra(x, counted)
        weights = counted.unsqueeze(-1).to(x.dtype)
        mean = (x * weights).sum(-2) / weights.sum(-2).clamp(min=1)
        past = torch.cat((state.recent.transpose(0, 1).to(mean.dtype), mean))
        seen = torch.cat((state.seen.t(), state.seen.new_ones(steps, batch)))
        recent = past.unfold(0, self.reach, 1).transpose(-1, -2)
        y, hier = self.hier(recent, seen.unfold(0, self.reach, 1))
        shown = {"intra": (intra, intra_present), "hier": (hier, hier_present)}
        shown = {name: shown[name] for name in MAPS if name in self.maps}
        fused = self.fusion(
            {name: attention for name, (attention, _) in shown.items()},
            {name: present for name, (_, present) in shown.items()},
            batch=batch,
        )
        representation = self.norm(y[..., -1, :])
        fused = torch.cat((representation, fused.to(y.dtype).expand(steps, batch, -1)), -1)
        past, seen = _latest(past, seen, self.reach - 1, lengths)
        return Encoded(x, fused, intra, hier), HierarchicalState(past, seen, state.memory)

    def remember(
        self, encoded: Encoded, memory: NTMState, lengths: Tensor | list[int] | None = None
    ) -> tuple[HierarchicalOutput, NTMState]:
        """One step of the memory for each segment: the output, and the memory's state after it."""
        x = encoded.fused
        active = active_steps(x.shape[0], x.shape[1], lengths, None, x.device)
        outputs, reads, memory = self.cell.unroll(x, memory, active)
        y = beside(outputs, reads)
        tags = None
        classes = None if self.classify is None else self.classify(y)
        if self.tag is not None:
            above = y.unsqueeze(-2).expand(*encoded.tokens.shape[:3], -1)
            tags = self.tag(torch.cat((encoded.tokens, above), -1))
        if active is not None:
            silent = ~active.unsqueeze(-1)
            classes = None if classes is None else classes.masked_fill(silent, 0)
            tags = None if tags is None else tags.masked_fill(silent.unsqueeze(-1), 0)
        return HierarchicalOutput(classes, tags, encoded.intra, encoded.hier), memory

    def _checked(self, tokens: Tensor, state: HierarchicalState | None) -> HierarchicalState:
        """The state itself if it fits, the initial one for None."""
        if tokens.dim() != 3 or 0 in tokens.shape[::2] or tokens.is_floating_point():
            raise ValueError(
                f"tokens is {tuple(tokens.shape)} of {tokens.dtype}; it must be whole numbers, "
                "(segments, batch, tokens a segment), with at least one token"
            )
        batch = tokens.shape[1]
        if state is None:
            return self.initial_state(batch)
        expected = (batch, self.reach - 1, self.d_model)
        if tuple(state.recent.shape) != expected:
            found = tuple(state.recent.shape)
            raise ValueError(f"the state's recent segments are {found}; this needs {expected}")
        self.cell.checked(state.memory, batch)
        return state


class MapEncoder(nn.Module):
    """A Transformer encoder that shows its attention; it does not know where anything stands.

    Each layer: x + attention(norm(x)), then that + MLP(norm(that)).
    """

    def __init__(self, d_model: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MapLayer(d_model, heads) for _ in range(layers))

    def forward(self, x: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """Encode sequences (..., n, d).

        Args:
            counted: (..., n) of bool, false for places that nobody attends to. Where no place
                counts at all, every one is attended to.

        Returns:
            (..., n, d), and the maps of all layers (..., heads · layers, n, n); the rows of a
            map sum to 1, but for places that do not count, whose rows are 0.
        """
        keys = (counted | ~counted.any(-1, keepdim=True)).unsqueeze(-2).unsqueeze(-2)
        maps = []
        for layer in self.layers:
            x, attention = layer(x, keys)
            maps.append(attention)
        shown = torch.cat(maps, -3) * counted.unsqueeze(-1).unsqueeze(-3).to(x.dtype)
        return x, shown


class MapLayer(nn.Module):
    """One layer of a `MapEncoder`."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"{d_model} numbers cannot be shared by {heads} attention heads")
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.project = nn.Linear(d_model, 3 * d_model)
        self.join = nn.Linear(d_model, d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, d_model)
        )

    def forward(self, x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """(..., n, d) and what may be attended to (..., 1, 1, n); the output and (..., A, n, n)."""
        parts = self.project(self.norm1(x)).unflatten(-1, (3 * self.heads, -1)).transpose(-2, -3)
        query, key, value = parts.split(self.heads, -3)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        attention = scores.masked_fill(~keys, -math.inf).softmax(-1)
        found = (attention.to(value.dtype) @ value).transpose(-2, -3).flatten(-2)
        x = x + self.join(found)
        return x + self.mlp(self.norm2(x)), attention


def sinusoids(length: int, size: int) -> Tensor:
    """(length, size): sine and cosine of the place at wavelengths from 2π to 20,000π."""
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000) / size))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :size]


def _latest(
    past: Tensor, seen: Tensor, count: int, lengths: Tensor | list[int] | None
) -> tuple[Tensor, Tensor]:
    """The last segments of each sample, batch first, from all known ones (count + S, B, ...)."""
    past, seen = past.transpose(0, 1), seen.t()
    if lengths is None:
        first = past.shape[1] - count
        return past[:, first:], seen[:, first:]
    counts = torch.as_tensor(lengths, device=past.device)
    places = counts.unsqueeze(1) + torch.arange(count, device=past.device)
    index = places.unsqueeze(-1).expand(-1, -1, past.shape[-1])
    return past.gather(1, index), seen.gather(1, places)
