"""Building the kernel: on request only, into a private folder, whole or not at all.

There is no lock that a killed build could leave behind. A build writes to a file of its own beside
its goal and renames it when it has been loaded once; of two builds at once the later one wins, and
what the earlier one made is the same. The name of the goal says what it was made from, so that
another torch, another processor or another version of the source never meets it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("kernel.cpp")
# A build takes half a minute on one core.
TIME_LIMIT = 600.0
# Drafts older than this belong to builds that were killed.
STALE = 2 * TIME_LIMIT

# What torch calls the processor's vectors, and how a compiler is told of them. Others are served by
# the vectors that ATen emulates.
_VECTORS = {
    "AVX512": "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma -mf16c",
    "AVX2": "-mavx2 -mfma -mf16c",
}


class BuildError(Exception):
    """The kernel cannot be built here; the message is one line that says why."""


def folder() -> Path:
    """Where kernels lie: `ONEGRAPH_CACHE`, or `onegraph` in the user's cache folder."""
    given = os.environ.get("ONEGRAPH_CACHE")
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "onegraph"


def goal() -> Path:
    """The file that a build for this torch, this processor and this source makes."""
    key = hashlib.sha256()
    for part in (SOURCE.read_text(encoding="utf-8"), *_flags(), platform.machine()):
        key.update(part.encode() + b"\0")
    name = f"ntm-torch{torch.__version__}-{vectors().lower()}-{key.hexdigest()[:12]}"
    return folder() / f"{name}{'.dll' if os.name == 'nt' else '.so'}"


def vectors() -> str:
    """What torch calls this processor's vectors."""
    return str(torch.backends.cpu.get_cpu_capability())


def compiler() -> str | None:
    """The C++ compiler: `CXX`, or the first that is found."""
    given = os.environ.get("CXX")
    if given:
        return given
    return next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)


def build(*, limit: float = TIME_LIMIT) -> Path:
    """Compile the kernel, load it once in a process of its own, and put it in its place.

    Args:
        limit: in seconds, for the compiler.

    Returns:
        The file; the one that is there already, if it can be loaded.

    Raises:
        BuildError: there is no compiler, it fails, it takes too long, or the folder is not to be
            written.
    """
    target = goal()
    if target.exists() and _loads(target, limit):
        return target
    tool = compiler()
    if tool is None:
        raise BuildError("no C++ compiler is found; name one in CXX, or install g++ or clang++")
    draft = target.with_name(f"{target.stem}.{os.getpid()}.{time.time_ns():x}.part")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(target.parent)
        _run([*shlex.split(tool), *_flags(), str(SOURCE), "-o", str(draft), *_libraries()], limit)
        _load(draft, limit)
        os.replace(draft, target)
    except OSError as error:
        raise BuildError(f"{error.filename or target.parent}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return target


def _flags() -> list[str]:
    capability = vectors()
    known = capability in _VECTORS
    flags = ["-std=c++20", "-O3", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"]
    flags += _VECTORS[capability].split() if known else []
    flags.append(f"-DCPU_CAPABILITY={capability if known else 'DEFAULT'}")
    if known:
        flags.append(f"-DCPU_CAPABILITY_{capability}")
    if "OpenMP" in torch.__config__.parallel_info() and sys.platform.startswith("linux"):
        flags.append("-fopenmp")
    root = Path(torch.__file__).parent / "include"
    for place in (root, root / "torch/csrc/api/include", sysconfig.get_path("include")):
        flags += ["-isystem", str(place)]
    flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
    return flags


def _libraries() -> list[str]:
    # No path to them goes in: whoever loads the kernel has loaded them with torch.
    return ["-L", str(Path(torch.__file__).parent / "lib"), "-lc10", "-ltorch_cpu"]


def _load(path: Path, limit: float) -> None:
    """Load it in a process of its own, which is all that a bad one can take down."""
    program = "import sys, torch; torch.ops.load_library(sys.argv[1])"
    _run([sys.executable, "-c", program, str(path)], limit)


def _loads(path: Path, limit: float) -> bool:
    try:
        _load(path, limit)
    except BuildError:
        return False
    return True


def _run(command: list[str], limit: float) -> None:
    try:
        # A session of its own, so that the time limit ends the compiler's own children too.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise BuildError(f"{command[0]}: there is no such compiler") from None
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} took longer than {limit:g} s and was ended") from None
    finally:
        _end(process)
    if process.returncode:
        text = output.decode(errors="replace")
        raise BuildError(f"{command[0]} failed with {process.returncode}: {_first_error(text)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process, its children included."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        os.killpg(process.pid, 9)
    else:
        process.kill()
    process.communicate()


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")


def _sweep(place: Path) -> None:
    """Remove what killed builds left."""
    for draft in place.glob("*.part"):
        try:
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()
        except OSError:
            continue
