"""Reports and traces as JSON, both ways. The report's names are a public contract."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
import types
import zlib
from array import array
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from onegraph.trace.graph import Graph
from onegraph.trace.model import Finding, Remedy, Report, Site, Trace

REPORT_SCHEMA = "onegraph.report/1"
TRACE_SCHEMA = "onegraph.trace/1"


class DecodeError(ValueError):
    """The text is not a trace or report of a version this onegraph reads."""


def report_to_dict(report: Report) -> dict[str, Any]:
    """The report as the contract's document."""
    return {
        "schema": REPORT_SCHEMA,
        "versions": dict(report.versions),
        "command": list(report.command),
        "process": {"pid": report.process.pid, "rank": report.process.rank},
        "outcome": report.outcome,
        "exit_status": report.exit_status,
        "exception": report.exception,
        "findings": [_finding(finding) for finding in report.findings],
    }


def report_to_json(report: Report) -> str:
    """The report as JSON text."""
    return json.dumps(report_to_dict(report), ensure_ascii=False, indent=2) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level,
        "symptom": finding.symptom,
        "cause": finding.cause,
        "certainty": finding.certainty,
        "summary": finding.summary,
        "names": list(finding.names),
        "sites": {role: [_site(s) for s in sites] for role, sites in finding.sites.items()},
        "unknown": dict(finding.unknown),
        "shared": None
        if finding.shared is None
        else {"nodes": finding.shared.nodes, "parameters": list(finding.shared.parameters)},
        "remedies": [_remedy(remedy) for remedy in finding.remedies],
        "headline": finding.headline,
        "why": finding.why,
        "avoid": finding.avoid,
    }


def _site(site: Site) -> dict[str, Any]:
    return {
        "file": site.file,
        "line": site.line,
        "column": site.column,
        "end_line": site.end_line,
        "end_column": site.end_column,
        "function": site.function,
        "code": site.code,
        "frames": [{"file": f.file, "line": f.line, "function": f.function} for f in site.frames],
        "count": site.count,
        "step": site.step,
        "label": site.label,
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "title": remedy.title,
        "effect": remedy.effect,
        "effect_note": remedy.effect_note,
        "patch": remedy.patch,
        "verified": remedy.verified,
        "edit": remedy.edit.text if remedy.edit else None,
        "changes": [
            {
                "file": c.file,
                "line": c.line,
                "end_line": c.end_line,
                "text": c.text,
                "after": c.after,
            }
            for c in (remedy.edit.changes if remedy.edit else ())
        ],
    }


def traces_to_json(traces: list[Trace], head: Report) -> str:
    """Saved traces with how the program ended: enough to draw the report again."""
    document = {
        "schema": TRACE_SCHEMA,
        "outcome": head.outcome,
        "exit_status": head.exit_status,
        "exception": head.exception,
        "command": list(head.command),
        "process": {"pid": head.process.pid, "rank": head.process.rank},
        "versions": dict(head.versions),
        "traces": [_encode(trace) for trace in traces],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def traces_from_json(text: str) -> tuple[list[Trace], dict[str, Any]]:
    """The traces of a saved file and the rest of its document.

    Raises:
        DecodeError: the text is no trace, is damaged, or comes from another version.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None
    if not isinstance(document, dict) or "schema" not in document:
        raise DecodeError("not a trace: it has no schema")
    if document["schema"] == REPORT_SCHEMA:
        raise DecodeError("this is a report (--json); give the file that --trace wrote")
    if document["schema"] != TRACE_SCHEMA:
        raise DecodeError(f"unknown schema {document['schema']!r}; this reads {TRACE_SCHEMA}")
    try:
        traces = [_decode(Trace, part) for part in document["traces"]]
        document["process"]["pid"], document["outcome"], document["exit_status"]
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
        raise DecodeError(f"damaged trace: {type(error).__name__}: {error}") from None
    return traces, document


def _encode(value: Any) -> Any:
    if isinstance(value, (array, bytes)):
        # A million numbers as text would be read by nobody.
        code, raw = ("b", value) if isinstance(value, bytes) else (value.typecode, _little(value))
        return {code: base64.b85encode(zlib.compress(raw, 6)).decode()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _encode(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(part) for part in value]
    return value


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{value!r} is none of {get_args(kind)}")
        return value
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        return None if value is None else _decode(options[0], value)
    if kind in (bytes, array):
        ((code, text),) = value.items()
        raw = zlib.decompress(base64.b85decode(text))
        if kind is bytes:
            return raw
        values: array[int] = array(code)
        values.frombytes(raw)
        if sys.byteorder == "big":
            values.byteswap()
        return values
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        known = {f.name for f in dataclasses.fields(kind)}
        return kind(**{k: _decode(hints[k], v) for k, v in value.items() if k in known})
    if origin is dict:
        key_kind, part_kind = get_args(kind)
        return {key_kind(key): _decode(part_kind, part) for key, part in value.items()}
    if origin is tuple:
        parts = get_args(kind)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_decode(parts[0], part) for part in value)
        return tuple(_decode(p, part) for p, part in zip(parts, value, strict=True))
    if kind in (str, int, bool) and not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


__all__ = ["DecodeError", "Graph", "report_to_dict", "report_to_json", "traces_from_json",
           "traces_to_json"]  # fmt: skip
