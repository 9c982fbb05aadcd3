"""Spells results as markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, its columns padded so that it reads well as plain text too."""
    widths = [max(len(row[k]) for row in [heads, *rows]) for k in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [heads, *rows]
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def verdict(value: float, target: float, form: str = "g") -> str:
    """``≤ 1.10 ok`` or ``≤ 1.10 MISSED``."""
    return f"≤ {target:{form}} {'ok' if value <= target else 'MISSED'}"
