"""The repaired twin of fusion_controller.py: shared maps, carried memory, one graph a window.

Each fault of the seed program is a wish that can be had. The attention maps are made once for many
windows: the graph is split at them, and one backward takes what the windows gathered through their
encoders. The memory goes on from window to window, detached. The two losses are back-propagated in
one pass, and the optimiser steps when everything has gone backward.
"""

import torch
from fusion_controller import (
    BATCH,
    PLACES,
    SLOTS,
    WIDTH,
    WINDOW,
    Encoder,
    NTMController,
    PageReader,
    make_book,
)

from onegraph.lifetime import assert_detached, backward_sum, detach, split_at, windows

CHAPTER, EPOCHS = 3, 3


def make_chapters():
    """The book's pages and their targets, several windows of them in each chapter."""
    parts = list(make_book())
    for at in range(0, len(parts), CHAPTER):
        pages, targets = zip(*parts[at : at + CHAPTER], strict=True)
        yield torch.cat(pages), torch.cat(targets)


def read_chapter(reader, chapter, layout, memory):
    """Back-propagates a chapter window by window; returns its recall loss and the memory."""
    total = 0.0
    with split_at(reader.encode_maps(layout)) as maps:
        for window in windows(chapter, WINDOW):
            assert_detached(memory, "memory")
            pages, targets = window.data
            recall, blur, memory = reader(pages, targets, layout, memory, *maps)
            parts = backward_sum({"recall": window.weigh(recall), "blur": window.weigh(blur)})
            total += parts["recall"]
            memory = detach(memory)
    return total, memory


torch.manual_seed(0)
reader = PageReader(NTMController(), Encoder())
optimizer = torch.optim.Adam(reader.parameters(), lr=1e-3)
layout = torch.rand(BATCH, PLACES, 2)
memory = 0.1 * torch.randn(BATCH, SLOTS, WIDTH)
chapters = list(make_chapters())

for epoch in range(EPOCHS):
    for chapter in chapters:
        optimizer.zero_grad()
        loss, memory = read_chapter(reader, chapter, layout, memory)
        optimizer.step()
        if chapter is chapters[0] or chapter is chapters[-1]:
            print(f"epoch {epoch}  loss {loss:.4f}")

trained = all(p.grad is not None and bool(p.grad.any()) for p in reader.hier_encoder.parameters())
print("the encoders of the maps are trained:", trained)
