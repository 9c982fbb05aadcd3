"""Leaves the long sweeps to ``pytest -m slow``."""

from __future__ import annotations

import pytest

SWEEPS = ("test_healthy_program_unchanged", "test_uncaught_exception", "test_interpreter_option")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow part of a sweep unless an expression with ``-m`` asks for tests."""
    if config.option.markexpr:
        return
    left = [i for i in items if i.get_closest_marker("slow") and i.name.startswith(SWEEPS)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
