"""A program behaves to the byte the same with and without us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.transparency.pairs import PROGRAMS, run_both, without_report

HEALTHY = sorted((Path(__file__).parents[1] / "healthy").glob("*.py"))
# One of each kind; the others run with `-m slow`.
QUICK = {
    "amp_bf16_scaler",
    "checkpoint_nonreentrant",
    "cnn_digits",
    "dataloader_fork",
    "func_per_sample",
    "hooks_all_kinds",
    "jit_script_rnn",
    "lbfgs_closure",
    "lstm_tbptt",
    "maml_second_order",
    "subclass_tensor",
    "transformer_encoder",
    "warnings_emitted",
}
# Their tests say more.
ELSEWHERE = {"compile_before_record", "debugged", "recursion", "tracebacks", "warnings_shown"}
SPECIAL = sorted(path for path in PROGRAMS.glob("*.py") if path.stem not in ELSEWHERE)
# They end with a failure of autograd, which gets its report.
EXPLAINED = {"anomaly"}
LONG = {"compile_counts", "control_flow", "corners", "processes"}


def each(paths: list[Path], slow: Callable[[Path], bool]) -> list[Any]:
    """The programs as parameters, some of them left to `-m slow`."""
    return [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if slow(path) else ())
        for path in paths
    ]


FAILURES = ["compiled", "group", "linear", "recomputed"]
MORE_FAILURES = [
    "function-forward",
    "hook",
    "attention",
    "c-function",
    "cause",
    "compiled-call",
    "context",
    "cross-entropy",
    "deep",
    "einsum",
    "func-grad",
    "function-backward",
    "function-signature",
    "generator",
    "getter",
    "gradient",
    "index",
    "init",
    "keyword",
    "lstm",
    "method",
    "module",
    "module-hook",
    "no-graph",
    "not-scalar",
    "operator",
    "own-hook",
    "packing",
    "pool",
    "python-operator",
    "recomputed-reentrant",
    "set-index",
    "setter",
    "softmax",
    "subclass",
    "task",
    "type-error",
    "vmap",
]


@pytest.mark.parametrize("program", each(HEALTHY, lambda path: path.stem not in QUICK))
def test_healthy_program_unchanged(program: Path, tmp_path: Path) -> None:
    """A healthy training program prints the same and ends the same."""
    pair = run_both(program, folder=tmp_path)
    assert pair.recorded == pair.bare
    assert pair.bare.status == 0


@pytest.mark.parametrize("program", each(SPECIAL, lambda path: path.stem in LONG))
def test_special_program_unchanged(program: Path, tmp_path: Path) -> None:
    """A program that looks at what a recorder might disturb sees the same; its text says what."""
    pair = run_both(program, folder=tmp_path)
    recorded = without_report(pair.recorded) if program.stem in EXPLAINED else pair.recorded
    assert recorded == pair.bare
    assert pair.bare.out


@pytest.mark.parametrize(
    "failure", [*FAILURES, *(pytest.param(f, marks=pytest.mark.slow) for f in MORE_FAILURES)]
)
def test_uncaught_exception(failure: str, tmp_path: Path) -> None:
    """Python prints the traceback it prints alone, after those that the program caught."""
    pair = run_both(PROGRAMS / "tracebacks.py", [failure], folder=tmp_path)
    # One of those that it caught is autograd's, and explained.
    assert without_report(pair.recorded) == pair.bare
    assert pair.bare.status == 1


def test_no_failure_is_left_out() -> None:
    """Every failure that the program knows is one of those tried."""
    text = (PROGRAMS / "tracebacks.py").read_text()
    known = text[text.index("FAILURES = {") : text.index("for name, failure in")]
    assert sorted([*FAILURES, *MORE_FAILURES]) == sorted(
        line.split('"')[1] for line in known.splitlines() if line.startswith('    "')
    )


def test_debugger_steps_as_alone(tmp_path: Path) -> None:
    """pdb neither stops in our frames nor shows them, here or below the program."""
    answers = (PROGRAMS / "debugged.stdin").read_text()
    pair = run_both(PROGRAMS / "debugged.py", folder=tmp_path, answers=answers)
    assert pair.recorded == pair.bare
    assert pair.bare.out.count("(Pdb)") == answers.count("\n")


@pytest.mark.slow
def test_compiled_before_recording(tmp_path: Path) -> None:
    """What was compiled before a recording is not compiled again in it, nor after it."""
    pair = run_both(PROGRAMS / "compile_before_record.py", folder=tmp_path)
    assert pair.recorded == pair.bare
    (tmp_path / "within").mkdir()
    within = run_both(
        PROGRAMS / "compile_before_record.py", ["onegraph"], folder=tmp_path / "within"
    )
    assert within.bare == within.recorded == pair.bare


def test_recursion_headroom(tmp_path: Path) -> None:
    """A few levels of Python's recursion limit go to us: those of the launcher and of the mode."""
    pair = run_both(PROGRAMS / "recursion.py", folder=tmp_path)
    bare, recorded = (
        [int(line.split()[1]) for line in ended.out.splitlines()[1:]]
        for ended in (pair.bare, pair.recorded)
    )
    assert pair.recorded.out.splitlines()[0] == pair.bare.out.splitlines()[0]
    assert all(0 <= b - r <= 16 for b, r in zip(bare, recorded, strict=True)), (bare, recorded)
