"""The pages of `onegraph explain`: what they show is what onegraph prints today."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from onegraph.cli import explain, main
from tests import forked
from tests.pages.running import PAGES, ROOT, causes, printed, run

CAUSES = [name for name in explain.names() if name != explain.MYTHS]
MYTHS = sorted(path.stem for path in (PAGES / "myths").glob("*.py"))
# The failing programs of these end as if nothing were wrong.
SILENT = {"accumulated-graph", "needless-retain", "zero-gradient-op"}


def source(name: str) -> str:
    """A program of the pages."""
    return (PAGES / f"{name}.py").read_text("utf-8")


@pytest.fixture(scope="module")
def runs(torch_loaded: None) -> dict[str, forked.Run]:
    """Every program of the pages, run once."""
    pages = [f"{cause}/{program}" for cause in CAUSES for program in ("fails", "repaired")]
    myths = [f"myths/{name}" for name in MYTHS]
    return {key: run(f"{key.partition('/')[2]}.py", source(key)) for key in (*pages, *myths)}


@pytest.mark.parametrize("cause", CAUSES)
def test_failing_program_has_this_cause_and_no_other(
    cause: str, runs: dict[str, forked.Run]
) -> None:
    """A page's failing program is a true example of its cause."""
    found = runs[f"{cause}/fails"]
    assert found.status == (0 if cause in SILENT else 1)
    assert causes(found) == [cause]


@pytest.mark.parametrize("cause", CAUSES)
def test_report_is_what_is_printed_today(cause: str, runs: dict[str, forked.Run]) -> None:
    """The stored report is up to date; `python -m tests.pages.regenerate` writes it anew."""
    assert (PAGES / cause / "report.txt").read_text("utf-8") == printed(runs[f"{cause}/fails"])


@pytest.mark.parametrize(
    "program", [*(f"{c}/repaired" for c in CAUSES), *map("myths/{}".format, MYTHS)]
)
def test_repaired_and_harmless_programs_run_clean(
    program: str, runs: dict[str, forked.Run]
) -> None:
    """A repair leaves nothing to report, and neither does what a myth blames."""
    found = runs[program]
    assert (found.status, found.err) == (0, "")
    assert found.findings == []


def test_myth_of_retaining_tells_the_measured_growth(runs: dict[str, forked.Run]) -> None:
    """The page's numbers are those its program counts, and they grow without end."""
    counts = [int(n) for n in re.findall(r"walks (\d+)", runs["myths/retain_grows"].out)]
    steps = {later - earlier for earlier, later in pairwise(counts)}
    assert len(steps) == 1
    told = f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} nodes: {steps.pop()} more"
    assert told in " ".join(explain.page("myths").split())


def test_myths_about_gradients_print_what_the_page_says(runs: dict[str, forked.Run]) -> None:
    """The programs that compare gradients compare equal; the detached encoder gets none."""
    assert runs["myths/clone"].out == "same gradient: True\n"
    assert runs["myths/detached_data"].out == "same gradient: True\n"
    assert runs["myths/detach_everything"].out == "the encoder's gradient: None\n"
    assert "prints `the encoder's gradient: None`" in explain.page("myths")


def test_every_cause_a_rule_can_name_has_a_page() -> None:
    """No report points to a page that is missing, and no page speaks of what is never reported."""
    named = set()
    for path in (ROOT / "src" / "onegraph" / "diagnosis").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and node.value in CAUSES:
                named.add(node.value)
    assert named == set(CAUSES)


def test_pages_make_up_the_contract() -> None:
    """Every cause of docs/report.md has a page."""
    text = (ROOT / "docs" / "report.md").read_text("utf-8")
    table = text.partition("## Causes")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert sorted(documented) == sorted(CAUSES)


def test_the_list_names_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    """`onegraph explain` alone lists what there is."""
    assert main(["explain"]) == 0
    listed = re.findall(r"^  ([a-z-]+)  ", capsys.readouterr().out, re.MULTILINE)
    assert listed == [*CAUSES, "myths"]


@pytest.mark.parametrize("name", [*CAUSES, "myths"])
def test_page_is_plain_text_of_80_columns(name: str) -> None:
    """A page has every placeholder filled, needs no wide terminal and no colour."""
    page = explain.page(name).partition("\nTo see it yourself:")[0]
    assert "{{" not in page
    assert "\x1b" not in page
    assert [line for line in page.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("cause", CAUSES)
def test_page_shows_program_report_and_changes(cause: str) -> None:
    """A page holds the whole failing program, the whole report and every changed line."""
    page = explain.page(cause)
    assert (
        "".join(
            f"    {line}" if line.strip() else line
            for line in source(f"{cause}/fails").splitlines(True)
        )
        in page
    )
    assert (PAGES / cause / "report.txt").read_text("utf-8") in page
    before, after = (source(f"{cause}/{n}").splitlines() for n in ("fails", "repaired"))
    for line in after:
        assert line in before or f"    +{line}\n" in page
    for heading in ("What it does to the gradient", "What is not a repair"):
        assert f"\n{heading}\n{'-' * len(heading)}\n" in page


@pytest.mark.parametrize("name", MYTHS)
def test_every_myth_program_is_on_the_page(name: str) -> None:
    """No program is kept that no page shows."""
    first = source(f"myths/{name}").splitlines()[-1]
    assert f"    {first}\n" in explain.page("myths")


def test_cause_may_be_copied_with_its_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    """`[carried-state]`, as a report prints it, names the page too."""
    assert main(["explain", "[carried-state]"]) == 0
    assert capsys.readouterr().out == explain.page("carried-state")


@pytest.mark.parametrize(
    ("word", "hint"), [("carried", "did you mean carried-state? "), ("xyzzy", "")]
)
def test_unknown_cause_is_a_usage_error(
    word: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One clear line on stderr, status 2, nothing on stdout."""
    assert main(["explain", word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"onegraph: no page on {word!r}; {hint}`onegraph explain` lists the pages\n"


def test_works_where_torch_is_not_installed() -> None:
    """Every page and the list come without torch, and none imports it."""
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from onegraph.cli import explain, main\n"
        "for name in explain.names():\n"
        "    assert main(['explain', name]) == 0\n"
        "assert main(['explain']) == 0\n"
        "assert main(['explain', 'nonsense']) == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("What is not a repair") == len(CAUSES)


class Terminal:
    """A stream that says whether it is a terminal."""

    def __init__(self, yes: bool) -> None:
        self.yes = yes

    def isatty(self) -> bool:
        """Whether this is a terminal."""
        return self.yes


@pytest.mark.parametrize(
    ("terminal", "environment", "wanted"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_headings_are_coloured_on_a_terminal_alone(
    terminal: bool, environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR wins over FORCE_COLOR, which stands in for a terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert explain._colour(Terminal(terminal)) is wanted  # type: ignore[arg-type]
    assert ("\x1b[1m" in explain.page("compile", colour=wanted)) is wanted


def test_reader_may_leave_early_and_see_only_ascii() -> None:
    """A closed pipe and a stream that cannot show every character are no errors."""
    command = [sys.executable, "-m", "onegraph", "explain", "optimizer-step-between"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONWARNINGS": ""}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("cause", CAUSES)
def test_failing_program_is_short(cause: str) -> None:
    """A program fits a screen and, indented, 80 columns."""
    lines = source(f"{cause}/fails").splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 76
