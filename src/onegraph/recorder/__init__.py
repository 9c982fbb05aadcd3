"""Watches the user's program: torch in, `Trace` out. The only layer alive while the user trains."""
