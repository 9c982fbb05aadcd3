"""``record`` and ``install`` change what they must, and leaving puts every original back."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.eval_frame
import torch.fx.traceback
import torch.multiprocessing.spawn
from torch.autograd.function import Function, _SingleLevelFunction
from torch.overrides import TorchFunctionMode

import onegraph
from onegraph.watch import Session

QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def patched() -> dict[Any, Any]:
    """Everything that recording replaces, by identity."""
    import bdb

    things: dict[Any, Any] = {
        (home.__name__, name): vars(home).get(name)
        for home, name in [
            (torch.autograd.graph, "_engine_run_backward"),
            (torch.autograd, "_engine_run_backward"),
            (Function, "apply"),
            (_SingleLevelFunction, "apply"),
            (torch._tensor, "_convert"),
            (torch._C.ScriptFunction, "__call__"),
            (torch._C.ScriptMethod, "__call__"),
            (torch._dynamo.eval_frame, "_maybe_set_eval_frame"),
            (torch.jit._script, "_script_impl"),
            (torch._C, "_create_function_from_trace"),
            (torch._C.ScriptModule, "_create_method_from_trace"),
            (torch.fx.traceback, "format_stack"),
            (sys.modules["torch.multiprocessing.spawn"], "start_processes"),
            (threading.Thread, "_bootstrap_inner"),
            (warnings, "_showwarnmsg"),
            (warnings, "_filters_mutated"),
            (bdb.Bdb, "stop_here"),
            (bdb.Bdb, "get_stack"),
        ]
    }
    for module in list(sys.modules.values()):
        for name in QUESTIONS:
            if name in getattr(module, "__dict__", {}):
                things[module.__name__, name] = vars(module)[name]
    things["filters"] = tuple(warnings.filters)
    things["finders"] = tuple(sys.meta_path)
    things["modes"] = tuple(torch.overrides._get_current_function_mode_stack())
    scripted = list(torch.jit._builtins._get_builtin_table().values())
    things["scripted"] = scripted.count("aten::has_torch_function")
    things["threads"] = threading.active_count()
    return things


def ours(things: dict[Any, Any]) -> set[Any]:
    """Which of them come from onegraph."""
    return {
        name
        for name, thing in things.items()
        if str(getattr(getattr(thing, "__func__", thing), "__code__", "")).count("onegraph")
    }


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """After each test the process is as before it."""
    before = patched()
    yield
    after = patched()
    assert {name for name in after if after[name] != before.get(name, after[name])} == set()
    assert ours(after) == set()
    assert Session.current is None


def work(fail: bool = False) -> torch.Tensor:
    """A forward and a backward pass, twice if it is to fail."""
    y = torch.nn.functional.softmax(torch.ones(3, requires_grad=True).exp(), dim=0)
    loss = (y * y).sum()
    loss.backward()
    if fail:
        loss.backward()
    return loss.detach()


def test_recording_replaces() -> None:
    """Inside the block the wrappers and one mode are in place: what follows tests something."""
    with onegraph.record():
        inside = patched()
        work()
    assert len(inside["modes"]) == 1
    assert ("torch.autograd", "_engine_run_backward") in ours(inside)
    assert ("torch.nn.functional", "has_torch_function_unary") in ours(inside)
    assert ("Thread", "_bootstrap_inner") in ours(inside)
    assert ("Function", "apply") not in ours(inside)


def test_leaving_by_an_exception() -> None:
    """An exception leaves the block as it is, with a note if it is autograd's."""
    with pytest.raises(KeyError) as caught, onegraph.record():
        raise KeyError("mine")
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(RuntimeError, match="second time") as failed, onegraph.record():
        work(fail=True)
    assert failed.value.__notes__
    assert type(failed.value) is RuntimeError


def test_nested() -> None:
    """Nested blocks share one mode; the outer one goes on after the inner one."""
    with onegraph.record():
        with onegraph.record(), onegraph.record():
            assert len(patched()["modes"]) == 1
            work()
        assert len(patched()["modes"]) == 1
        work()


def test_one_object_again_and_within_itself() -> None:
    """One object can be entered several times, also within itself."""
    watch = onegraph.record()
    for _ in range(2):
        with watch, watch:
            work()
        assert patched()["modes"] == ()


def test_decorator() -> None:
    """A decorated function keeps its name and result, and records while it runs."""

    @onegraph.record()
    def decorated(x: int, *, y: int = 2) -> tuple[int, int]:
        """Documented."""
        return x + y, len(patched()["modes"])

    assert decorated(1, y=3) == (4, 1)
    assert decorated.__name__ == "decorated"
    assert decorated.__doc__ == "Documented."


def test_generator_with_a_block() -> None:
    """A generator that stops inside a block leaves it when it is closed."""

    def generate() -> Iterator[torch.Tensor]:
        with onegraph.record():
            while True:
                yield work()

    numbers = generate()
    assert next(numbers) == next(numbers)
    numbers.close()


def test_coroutine_with_a_block() -> None:
    """Tasks of one thread may be in blocks at the same time."""

    async def task() -> None:
        with onegraph.record():
            for _ in range(3):
                work()
                await asyncio.sleep(0)

    async def tasks() -> None:
        await asyncio.gather(task(), task())

    asyncio.run(tasks())


def test_in_a_thread() -> None:
    """A thread may record; others then pass through the wrappers unrecorded."""
    inside: list[Any] = []

    def record() -> None:
        with onegraph.record():
            inside.append(patched()["modes"])
            work()

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert [len(modes) for modes in inside] == [1]


def test_threads_that_overlap() -> None:
    """Recordings of several threads, and threads that outlive them, all end restored."""
    entered, go = threading.Barrier(3), threading.Event()

    def record() -> None:
        with onegraph.record():
            entered.wait(10)
            work()

    def outlive() -> None:
        work()
        go.wait(10)
        work()

    with onegraph.record():
        longest = threading.Thread(target=outlive)
        longest.start()
    threads = [threading.Thread(target=record) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(10)
    for thread in threads:
        thread.join()
    go.set()
    longest.join()


@pytest.mark.parametrize(
    "call",
    [
        work,
        lambda: torch.nn.functional.relu(torch.ones(1)),
        lambda: torch.nn.MultiheadAttention(4, 1)(*[torch.ones(1, 1, 4)] * 3),
        lambda: torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)),
    ],
    ids=["backward", "function", "module", "compiled"],
)
def test_ended_by_another_thread(call: Callable[[], Any]) -> None:
    """A recording that another thread ends leaves its own thread at that one's next call."""
    watch = onegraph.record()
    watch.__enter__()
    work()
    thread = threading.Thread(target=watch.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
    call()
    assert patched()["modes"] == ()


def test_left_out_of_order() -> None:
    """A mode of the program's that outlives the block, or the other way round, is undisturbed."""

    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            Counting.count += 1
            return func(*args, **(kwargs or {}))

    mode, watch = Counting(), onegraph.record()
    mode.__enter__()
    watch.__enter__()
    mode.__exit__(None, None, None)
    count = Counting.count
    work()
    assert Counting.count == count
    mode.__enter__()
    watch.__exit__(None, None, None)
    torch.ones(1)
    assert Counting.count > count
    mode.__exit__(None, None, None)
    device = torch.device("meta")
    device.__enter__()
    with onegraph.record():
        device.__exit__(None, None, None)
        assert torch.ones(1).device.type == "cpu"
        torch.set_default_device("meta")
        assert torch.ones(1).device.type == "meta"
    assert torch.ones(1).device.type == "meta"
    with onegraph.record():
        torch.set_default_device(None)
        assert torch.ones(1).device.type == "cpu"


def test_wrapped_by_others() -> None:
    """What somebody else puts around a wrapper of ours stays, and passes through."""
    calls = []
    with onegraph.record():
        wrapper = torch.autograd.graph._engine_run_backward

        def theirs(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            return wrapper(*args, **kwargs)

        torch.autograd._engine_run_backward = theirs
        work()
    assert torch.autograd._engine_run_backward is theirs
    work()
    assert len(calls) == 2
    torch.autograd._engine_run_backward = torch.autograd.graph._engine_run_backward


def test_kept_references_pass_through() -> None:
    """A wrapper that the program kept works on after the recording."""
    with onegraph.record():
        asks = torch.overrides.has_torch_function
        backward = torch.autograd.graph._engine_run_backward
    assert asks((torch.ones(1),)) is False
    x = torch.ones(1, requires_grad=True)
    backward((x * 2,), (torch.ones(1),), False, False, (), True, accumulate_grad=True)
    assert x.grad is not None


def run_program(text: str) -> list[str]:
    """The lines that a program of its own process prints."""
    import os
    import subprocess

    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_importing_changes_nothing() -> None:
    """Importing onegraph, and looking at what it offers, imports no torch and patches nothing."""
    assert run_program(
        """
        import sys, threading, warnings
        before = [threading.Thread._bootstrap_inner, warnings._showwarnmsg, list(warnings.filters),
                  list(sys.meta_path), sys.excepthook, sys.gettrace()]
        import onegraph
        dir(onegraph), onegraph.record, onegraph.install, onegraph.diagnose, onegraph.report
        onegraph.record()
        after = [threading.Thread._bootstrap_inner, warnings._showwarnmsg, list(warnings.filters),
                 list(sys.meta_path), sys.excepthook, sys.gettrace()]
        print(before == after, "torch" in sys.modules)
        import torch
        print(len(torch.overrides._get_current_function_mode_stack()))
        """
    ) == ["True False", "0"]


def test_install() -> None:
    """Installing, once or twice, wraps the engine alone; a recording within takes its own out."""
    assert run_program(
        """
        import sys
        sys.path.insert(0, ".")
        import torch, onegraph
        from tests.transparency.test_record import ours, patched, work
        onegraph.install()
        print(sorted(name for _, name in ours(patched())))
        onegraph.install()
        print(sorted(name for _, name in ours(patched())))
        first = patched()["filters"], patched()["finders"]
        with onegraph.record():
            print(len(patched()["modes"]))
            work()
        print(sorted(name for _, name in ours(patched())), len(patched()["modes"]))
        print((patched()["filters"], patched()["finders"]) == first)
        try:
            work(fail=True)
        except RuntimeError as error:
            print(len(error.__notes__))
        """
    ) == [
        "['_engine_run_backward', '_engine_run_backward']",
        "['_engine_run_backward', '_engine_run_backward']",
        "1",
        "['_engine_run_backward', '_engine_run_backward'] 0",
        "True",
        "1",
    ]


def test_a_thread_that_only_watches() -> None:
    """A thread that lives on and makes no node, a progress bar's, is not waited for."""
    stop = threading.Event()
    before = patched()
    with onegraph.record():
        watcher = threading.Thread(target=stop.wait, daemon=True)
        watcher.start()
        work()
    after = patched()
    stop.set()
    watcher.join()
    assert {name for name in after if after[name] != before.get(name, after[name])} == {"threads"}
    assert ours(after) == set()
