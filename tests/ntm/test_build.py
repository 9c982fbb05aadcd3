"""The kernel is built on request only, whole or not at all, and nothing needs it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from onegraph.ntm.window import build

# Steps over a window, twice, and says whether the kernel did.
PROGRAM = """
import torch
from onegraph.ntm import NTM
from onegraph.ntm.window import kernel
for _ in range(2):
    y, _ = NTM(3, 2, memory=(7, 5), hidden_size=6)(torch.randn(4, 2, 3))
    y.sum().backward()
print(kernel.load())
"""

needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder for kernels."""
    monkeypatch.setenv("ONEGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def script(path, text):
    """A program that stands for the compiler."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def python(program, **environment):
    """Run a program; its output and its errors."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout, done.stderr


def begin(**environment):
    """Begin `onegraph ntm build` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "onegraph", "ntm", "build"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_nothing_builds_on_import_or_use(cache, tmp_path):
    """Without a kernel all works, one line says so, and no compiler is called."""
    called = tmp_path / "called"
    compiler = script(tmp_path / "compiler", f"touch {called}; exit 1")
    output, errors = python(PROGRAM, CXX=compiler)
    assert output == "False\n"
    assert errors.count("`onegraph ntm build` builds it") == 1
    assert not called.exists()
    assert not cache.exists()


def test_it_can_be_left_aside(built):
    """ONEGRAPH_KERNEL=0 leaves the kernel aside, without a word."""
    output, errors = python(PROGRAM, ONEGRAPH_KERNEL="0")
    assert output == "False\n"
    assert "kernel" not in errors


def test_what_is_built_is_used(built):
    """A process finds the kernel that another one built."""
    output, errors = python(PROGRAM)
    assert output == "True\n"
    assert "kernel" not in errors


@needs_compiler
def test_two_builds_at_once_end_with_one_kernel(cache):
    """Two builds neither wait for each other nor spoil what the other makes."""
    builds = [begin(), begin()]
    for process in builds:
        output, _ = process.communicate()
        assert process.returncode == 0, output
    assert len(list(cache.iterdir())) == 1
    assert python(PROGRAM)[0] == "True\n"
    assert cache.stat().st_mode & 0o077 == 0


@needs_compiler
def test_a_killed_build_leaves_nothing_that_matters(cache):
    """After kill -9 at any moment the next build goes its way; what is left is swept up later."""
    for delay in (0.5, 4.0):
        process = begin()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    leftover = cache / "old.part"
    cache.mkdir(exist_ok=True)
    leftover.write_bytes(b"")
    os.utime(leftover, (0, 0))
    path = build.build()
    assert path.exists()
    assert not leftover.exists()
    assert python(PROGRAM)[0] == "True\n"


@needs_compiler
def test_a_broken_kernel_is_left_aside_and_built_anew(cache):
    """A file that cannot be loaded stops nobody, and the next build replaces it."""
    cache.mkdir()
    build.goal().write_bytes(b"\x7fELF, but no more")
    output, errors = python(PROGRAM)
    assert output == "False\n"
    assert "cannot be loaded" in errors
    build.build()
    assert python(PROGRAM)[0] == "True\n"


def test_a_slow_compiler_is_ended(cache, tmp_path, monkeypatch):
    """A compiler that does not end is ended with all its children, and one line says so."""
    born = tmp_path / "born"
    monkeypatch.setenv("CXX", script(tmp_path / "c", f"sleep 600 & echo $! > {born}; wait"))
    with pytest.raises(build.BuildError, match="took longer than 1 s and was ended"):
        build.build(limit=1)
    child = int(born.read_text())
    for _ in range(100):
        if not running(child):
            break
        time.sleep(0.05)
    assert not running(child)
    assert list(cache.iterdir()) == []


def running(pid):
    """Whether there is such a process, and it is not dead and merely not buried."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def test_every_failure_is_one_line(cache, tmp_path, monkeypatch):
    """No compiler, a failing one, and a folder that is none: each is told in one line."""
    fails = script(tmp_path / "c", "echo kernel.cpp:1: error: no such thing >&2; exit 3")
    monkeypatch.setenv("CXX", fails)
    with pytest.raises(build.BuildError, match=r"failed with 3: kernel\.cpp:1: error: no"):
        build.build()
    process = begin()
    output, _ = process.communicate()
    assert process.returncode == 1
    assert output.count("\n") == 1
    assert "all works without it" in output
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    with pytest.raises(build.BuildError, match="there is no such compiler"):
        build.build()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler is found"):
        build.build()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONEGRAPH_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("CXX", fails)
    with pytest.raises(build.BuildError, match="file: File exists"):
        build.build()


def test_another_torch_or_processor_has_another_kernel(monkeypatch):
    """The name of a kernel tells the version of torch, the vectors and the source apart."""
    names = {build.goal().name}
    monkeypatch.setattr(build.torch, "__version__", "9.9.9")
    names.add(build.goal().name)
    monkeypatch.setattr(build, "vectors", lambda: "DEFAULT")
    names.add(build.goal().name)
    assert len(names) == 3


@needs_compiler
@pytest.mark.parametrize("capability", ["AVX2", pytest.param("DEFAULT", marks=pytest.mark.slow)])
def test_it_builds_for_lesser_processors(capability, cache, monkeypatch):
    """The kernel is right with narrower vectors too, and with those that ATen emulates."""
    if build.vectors() not in ("AVX512", "AVX2"):
        pytest.skip("no processor to try them on")
    monkeypatch.setattr(build, "vectors", lambda: capability)
    path = build.build()
    python(CHECK.format(path=str(path)))


CHECK = """
import torch
from onegraph.ntm import NTMCell
from onegraph.ntm.window import choice, kernel
torch.ops.load_library({path!r})
for dtype, far in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
    torch.manual_seed(0)
    cell = NTMCell(3, memory=(37, 5), hidden_size=11, write_heads=2).to(dtype)
    x = torch.randn(9, 5, 3, dtype=dtype)
    found = []
    for used in (True, False):
        choice.kernel.load = lambda: used
        outputs, reads, _ = cell.unroll(x, cell.initial_state(5))
        total = outputs.sum() + reads.square().sum()
        found.append([total, *torch.autograd.grad(total, list(cell.parameters()))])
    for a, b in zip(*found):
        assert ((a - b).abs() / (1 + b.abs())).max() < far
"""
