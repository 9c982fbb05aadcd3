"""What the tests of memory networks share."""

from __future__ import annotations

import pytest

from onegraph.ntm.window import build, choice, kernel


@pytest.fixture(scope="session")
def built():
    """The kernel, built if it was not; without a compiler the tests that need it are skipped."""
    if build.compiler() is None:
        pytest.skip("no C++ compiler")
    path = build.build()
    kernel.load.cache_clear()
    assert kernel.load()
    return path


@pytest.fixture(params=["kernel", "steps"])
def engine(request, monkeypatch):
    """Each engine in turn steps over the windows of the test."""
    if request.param == "kernel":
        request.getfixturevalue("built")
    monkeypatch.setattr(choice.kernel, "load", lambda: request.param == "kernel")
    return request.param
