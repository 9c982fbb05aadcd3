"""Draws a `Report`: terminal, plain text. Knows no torch."""
