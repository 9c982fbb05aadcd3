"""The line recorded for a node is the one in anomaly mode's traceback, or none is named."""

import threading
import warnings
from queue import Queue
from typing import Any

import pytest
import torch

from onegraph.recorder import torchapi
from onegraph.recorder.examination import Examination
from onegraph.recorder.session import Recorder
from onegraph.watch import Session, Use
from tests.exactness import programs
from tests.exactness.judge import Nameless, compare, judge, roots_of
from tests.exactness.programs import engine, functions, python_forms, threads, torch_calls
from tests.exactness.programs.functions import leaf

SUBJECTS = (functions, engine, torch_calls, python_forms, threads)


@pytest.fixture(autouse=True)
def _as_torch_warns():
    """torch warns of much that these programs do; that is not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda program: program.name)
def test_lines_of_a_program(program: programs.Program) -> None:
    """Every node has its line, but for those said to go without one, and none a wrong one."""
    tally = judge(program.make)
    assert tally.wrong == []
    assert tally.right > 0
    if program.unknown is not None:
        assert tally.unknown == program.unknown, tally.missed


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda module: module.__name__.split(".")[-1])
def test_lines_do_not_depend_on_what_ran_before(subject: Any) -> None:
    """Programs that run one after another under a single recording have the same lines."""
    names = [p for p in programs.PROGRAMS if p.make.__module__ == subject.__name__]

    def all_of_them() -> Any:
        return [program.make() for program in names]

    tally = judge(all_of_them)
    assert tally.wrong == []
    assert tally.right > 0
    if all(p.unknown is not None for p in names):
        assert tally.unknown == sum(p.unknown or 0 for p in names), tally.missed


def test_nodes_from_before_the_recording() -> None:
    """A node made before recording began has no line, and does not take one of later nodes."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        before = leaf().exp().sin()
        use = Use(lines=True)
        session = use.begin()
        try:
            after = before.cos()
            tally = compare(session.recorder, roots_of(after))
        finally:
            use.end()
    assert (tally.right, tally.unknown, tally.wrong) == (1, 2, [])


def test_a_second_recording() -> None:
    """A recording after another one knows its own lines alone."""
    first = judge(lambda: leaf().exp() * 2)
    second = judge(lambda: leaf().sin() * 2)
    assert (first.right, first.unknown, first.wrong) == (2, 0, [])
    assert (second.right, second.unknown, second.wrong) == (2, 0, [])


def test_a_thread_from_before_the_recording() -> None:
    """In a thread that was not recorded every line is unknown, however its numbers fall."""
    work: Queue[Any] = Queue()
    done: Queue[Any] = Queue()

    def serve() -> None:
        while (task := work.get()) is not None:
            done.put(task())

    thread = threading.Thread(target=serve)
    thread.start()
    use = Use(lines=True)
    session = use.begin()
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            here = [leaf().exp().sin() for _ in range(20)]

        def there() -> Any:
            with torch.autograd.set_detect_anomaly(True, check_nan=False):
                made = leaf().cos().sum()
                return compare(session.recorder, roots_of(made))

        work.put(there)
        tally = done.get()
    finally:
        use.end()
        work.put(None)
        thread.join()
    assert here
    assert (tally.right, tally.unknown, tally.wrong) == (0, 2, [])


def test_the_engines_own_threads() -> None:
    """A thread of the engine brings its caller's mode along, and leaves the record as it was.

    It counts from nought, so what a hook computes there would fall among the caller's first
    nodes. Only accelerators have such threads; here one is made by hand.
    """
    begun, finished = threading.Event(), threading.Event()
    tasks: list[Any] = []

    def serve() -> None:
        begun.wait()
        tasks[0]()
        finished.set()

    thread = threading.Thread(target=serve)
    thread.start()

    def program() -> Any:
        mode = Session.current.recorder.tape().mode
        first = leaf().exp().sin()

        def elsewhere() -> None:
            torchapi.push_mode(mode)
            leaf().cos().tanh()
            torchapi.remove_mode(mode)

        tasks.append(elsewhere)
        begun.set()
        finished.wait()
        second = first.tanh()
        return first, second

    tally = judge(program)
    thread.join()
    assert (tally.right, tally.unknown, tally.wrong) == (3, 0, [])


def test_compiled_code() -> None:
    """A node that compiled code made has the line that called the compiled function."""

    @torch.compile(backend="aot_eager")
    def compiled(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y * y

    use = Use(lines=True)
    session = use.begin()
    try:
        for _ in range(2):
            x = leaf() * 1
            y = compiled(x)
            z = y.sum()
            z.backward()
            assert _expressions(session.recorder, z) == {
                "MulBackward0": "leaf() * 1",
                "CompiledFunctionBackward": "compiled(x)",
                "SumBackward0": "y.sum()",
            }
    finally:
        use.end()
    assert session.recorder.ordinal == 2


def _expressions(recorder: Recorder, tensor: torch.Tensor) -> dict[str, str]:
    """The type of each node below a tensor, and the expression that made it."""
    seen = Examination(recorder, roots_of(tensor), [], recorder.ordinal + 1, None, Nameless())
    trace = seen.trace(None)
    graph = trace.graph
    made = [p for p in range(len(graph)) if graph.site[p] >= 0]
    return {graph.name(p): trace.sites[graph.site[p]].code for p in made}
