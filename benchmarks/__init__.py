"""Measures what onegraph costs; `python -m benchmarks.cost` prints every table."""
