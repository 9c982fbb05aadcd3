"""Saved traces and reports: both ways, and whatever a damaged file may hold."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.compose import compose
from onegraph.trace import Graph, codec

TRACES = sorted((Path(__file__).parent.parent / "messages" / "traces").glob("*.json"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_round_trip(path):
    """A trace that is read and written again is the same trace."""
    traces, document = codec.traces_from_json(path.read_text())
    report = compose(traces, document["outcome"], 1, document["exception"])
    again, _ = codec.traces_from_json(codec.traces_to_json(traces, report))
    assert again == traces


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_report_document_is_the_contract(path):
    """The JSON report has every name of the public contract, with values of its kinds."""
    traces, document = codec.traces_from_json(path.read_text())
    report = compose(traces, "raised", 1, document["exception"], command=("train.py",))
    data = json.loads(codec.report_to_json(report))
    assert data["schema"] == "onegraph.report/1"
    assert set(data) == {
        *("schema", "versions", "command", "process", "outcome", "exit_status"),
        *("exception", "findings"),
    }
    for finding in data["findings"]:
        assert {
            *("level", "symptom", "cause", "certainty", "summary", "names", "sites"),
            *("unknown", "shared", "remedies"),
        } <= set(finding)
        assert finding["level"] in ("error", "warning", "note")
        assert finding["certainty"] in ("proved", "likely")
        for sites in finding["sites"].values():
            assert 1 <= len(sites) <= 2
            for site in sites:
                assert site["line"] >= 1
                assert site["column"] is None or site["column"] >= 0
                assert site["frames"]
        for remedy in finding["remedies"]:
            assert remedy["effect"] in ("same", "truncates", "changes")
            assert remedy["patch"] is None
            assert remedy["verified"] is None


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_trace_is_told(data):
    """A trace with a piece cut out, doubled or replaced is read or refused, never a crash."""
    text = data.draw(st.sampled_from(TRACES)).read_text()
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, min(len(text), first + 400)))
    middle = data.draw(st.text(max_size=20) | st.just(text[first:last] * 2))
    try:
        traces, _ = codec.traces_from_json(text[:first] + middle + text[last:])
    except codec.DecodeError:
        return
    assert isinstance(traces, list)


@settings(deadline=None, max_examples=100)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_json_is_refused_in_words(value):
    """JSON that is no trace is refused with a sentence."""
    with pytest.raises(codec.DecodeError, match=r"\w"):
        codec.traces_from_json(json.dumps(value))


def test_report_is_not_taken_for_a_trace():
    """Giving the --json file to `onegraph report` is told apart from a broken trace."""
    with pytest.raises(codec.DecodeError, match="--trace"):
        codec.traces_from_json('{"schema": "onegraph.report/1"}')


def chain(edges):
    """A graph from lists of targets."""
    start, target = [0], []
    for targets in edges:
        target += targets
        start.append(len(target))
    n = len(edges)
    zeros = [0] * n
    return Graph(
        kinds=("A",),
        kind=array("i", zeros),
        number=array("q", range(n)),
        thread=array("i", zeros),
        site=array("i", zeros),
        call=array("q", zeros),
        epoch=array("i", zeros),
        state=bytes(n),
        start=array("q", start),
        target=array("i", target),
        output=array("i", [0] * len(target)),
    )


@given(st.lists(st.lists(st.integers(-1, 11), max_size=3), min_size=12, max_size=12))
def test_reach_and_leads_to_are_inverse(edges):
    """b is reached from a exactly when a leads to b."""
    graph = chain(edges)
    for a in range(12):
        reach = graph.reach([a])
        for b in range(12):
            assert reach[b] == graph.leads_to([b])[a]
