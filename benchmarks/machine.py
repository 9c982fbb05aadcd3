"""Names what a measurement ran on, and starts the processes that it runs in."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Set before torch is imported: on tiny tensors threads cost more than they bring.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def environment() -> dict[str, str]:
    """The environment of a measured process."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path}


class Ended(RuntimeError):
    """A process ended with another status than 0."""

    def __init__(self, command: list[str], status: int, stderr: str) -> None:
        super().__init__(f"{' '.join(command)} ended with status {status}:\n{stderr[-4_000:]}")
        self.status = status


def run_module(module: str, *arguments: str, timeout: float = 3_600) -> Any:
    """Run a module of ours in its own process and return the JSON in its last line.

    Raises:
        Ended: the process did not end with status 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode != 0:
        raise Ended(command, done.returncode, done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def one_thread() -> None:
    """Make torch use one thread, and the same random numbers every time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)


def children_seconds() -> float:
    """Computing time of this process's children that have ended."""
    try:
        import resource
    except ImportError:
        times = os.times()
        return times.children_user + times.children_system
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak_mb() -> float:
    """The most memory this process has had so far, 0 where that cannot be told."""
    try:
        # Not ru_maxrss where there is this: that one goes over to the processes one starts.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / (1 << 10)
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def resident_mb() -> float:
    """The memory this process has now; the peak where only that is told."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def description() -> dict[str, Any]:
    """The machine and the versions that numbers belong to."""
    import torch

    import onegraph

    return {
        "cpu": _model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "onegraph": onegraph.__version__,
        "threads": 1,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,
    }


def _model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
