"""onegraph explains why autograd failed: which line, which variable, which earlier call.

Importing this package patches nothing and does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph._version import __version__

if TYPE_CHECKING:
    from onegraph import lifetime, ntm
    from onegraph.api import diagnose, install, record, report

__all__ = ["__version__", "diagnose", "install", "lifetime", "ntm", "record", "report"]


def __getattr__(name: str) -> object:
    if name in ("diagnose", "install", "record", "report"):
        from onegraph import api

        return getattr(api, name)
    if name in ("lifetime", "ntm"):
        from importlib import import_module

        return import_module(f"onegraph.{name}")
    raise AttributeError(f"module 'onegraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
