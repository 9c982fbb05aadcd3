"""Shared by all tests: torch is imported once and programs run in forked children."""

from __future__ import annotations

import pytest

from tests import forked


@pytest.fixture(scope="session")
def torch_loaded() -> None:
    """Import torch before the first fork, so that children need not."""
    forked.preload()
