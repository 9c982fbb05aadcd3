"""Lays a report out as lines of styled parts; how a line is drawn is a renderer's business."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from onegraph.trace import Finding, Remedy, Report, Site

MOST_LINES = 25


@dataclass(frozen=True, slots=True)
class Line:
    """One line: (text, style) parts, styles being names a renderer knows."""

    parts: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(text for text, _ in self.parts).rstrip()


def layout(report: Report, width: int, *, source: bool = True) -> list[Line]:
    """Every finding in order, an empty line between two."""
    lines: list[Line] = []
    for finding in report.findings:
        if lines:
            lines.append(Line(()))
        lines.extend(of_finding(finding, report, max(width, 40), source=source))
    return lines


def of_finding(finding: Finding, report: Report, width: int, *, source: bool) -> list[Line]:
    """One finding, `MOST_LINES` lines at most: what matters least is left out first."""
    head = _head(finding, report, width)
    tail = _tail(finding, report, width)
    rows: list[tuple[str, list[Line]]] = []
    places: set[tuple[str, int]] = set()
    for role in finding.order or tuple(finding.sites):
        for site in finding.sites.get(role, ())[:1]:
            if site.place in places and (role == "built" or not site.label):
                continue
            places.add(site.place)
            names = finding.names if role == "joined" else ()
            rows.append((role, _row(site, names, report, width, source=source)))
        if role in finding.unknown:
            text = f"{_ROLE_WORDS.get(role, role)} is unknown: {finding.unknown[role]}"
            parts = _wrap(text, width - 2)
            rows.append((role, [Line((("  ", ""), (part, "dim"))) for part in parts]))
    space = MOST_LINES - len(head) - len(tail)
    for spare in ("kept", "built", "freed", "joined"):
        if sum(len(lines) for _, lines in rows) > space:
            rows = [row for row in rows if row[0] != spare]
    body = [line for _, lines in rows for line in lines]
    shared = _shared(finding, width)
    if len(head) + len(body) + len(shared) + len(tail) > MOST_LINES:
        shared = []
    return [*head, *body, *shared, *tail]


def _shared(finding: Finding, width: int) -> list[Line]:
    """Which parameters lie behind the freed part."""
    names = finding.shared.parameters if finding.shared is not None else ()
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    listed = ", ".join(names[:3] if more else names)
    return _paragraph("behind it: ", f"{listed}{more}", width, style="dim")


_ROLE_WORDS = {
    "built": "the line that made it",
    "joined": "the line that took it in",
    "freed": "the call that freed it",
    "failed": "the line that failed",
    "mutated": "the line that wrote to it",
    "needed": "the line that saved it",
}


def _head(finding: Finding, report: Report, width: int) -> list[Line]:
    level = finding.level
    rank = report.process.rank
    where = f" (rank {rank})" if rank is not None else ""
    if report.outcome == "finished" and level == "error":
        where += " (caught)"  # the program dealt with it and went on to its end
    certainty = "probably: " if finding.certainty == "likely" else ""
    tag = f"[{finding.cause}]"
    title = f"{level}{where}: {certainty}{finding.headline or finding.summary}"
    label = len(level) + len(where) + 1
    if cell_len(title) + cell_len(tag) + 2 <= width:
        gap = " " * (width - cell_len(title) - cell_len(tag))
        return [Line(((title[:label], level), (title[label:], "bold"), (gap, ""), (tag, "cause")))]
    parts = _wrap(title, width - 2)
    lines = [Line(((parts[0][:label], level), (parts[0][label:], "bold")))]
    lines += [Line((("  " + part, "bold"),)) for part in parts[1:]]
    last = lines[-1].text
    if cell_len(last) + cell_len(tag) + 1 <= width:
        lines[-1] = Line((*lines[-1].parts, (" ", ""), (tag, "cause")))
    else:
        lines.append(Line((("  ", ""), (tag, "cause"))))
    return lines


def _row(
    site: Site, names: tuple[str, ...], report: Report, width: int, *, source: bool
) -> list[Line]:
    """``file:line   code   label`` with the exact expression underlined."""
    place = f"  {site.file}:{site.line}   "
    code, column, length = _shown(site, names, report) if source else ("", None, 0)
    label = site.label or ""
    if cell_len(place) > width // 3:
        # A long path takes a line of its own, so the code has room.
        first = Line(((place.rstrip(), "place"), ("   ", ""), (label if source else "", "label")))
        if cell_len(first.text) <= width and source:
            return [first, *_marked("      ", code, column, length, "", width)]
        return [
            Line(((place.rstrip(), "place"),)),
            *_marked("      ", code, column, length, label, width),
        ]
    return _marked(place, code, column, length, label, width)


def _marked(
    place: str, code: str, column: int | None, length: int, label: str, width: int
) -> list[Line]:
    """Code after ``place``, the mark below it, the label where it fits."""
    lines: list[Line] = []
    room = width - cell_len(place)
    if cell_len(code) > room:
        code, column, length = _shortened(code, column, length, room)
    if label and cell_len(place) + cell_len(code) + 3 + cell_len(label) <= width:
        gap = max(34 - cell_len(code), 3)
        if cell_len(place) + cell_len(code) + gap + cell_len(label) > width:
            gap = 3
        first = Line(((place, "place"), (code, "code"), (" " * gap, ""), (label, "label")))
        lines.append(first)
        label = ""
    else:
        lines.append(Line(((place, "place"), (code, "code"))))
    indent = cell_len(place)
    if column is not None and length > 0:
        before = cell_len(code[:column])
        carets = max(cell_len(code[column : column + length]), 1)
        carets = min(carets, width - indent - before)
        mark = " " * (indent + before) + "^" * carets
        if label and indent + before + carets + 1 + cell_len(label) <= width:
            lines.append(Line(((mark, "caret"), (" " + label, "label"))))
            label = ""
        else:
            lines.append(Line(((mark, "caret"),)))
    if label:
        for part in _wrap(label, width - 6):
            lines.append(Line((("      ", ""), (part, "label"))))
    return lines


def _shown(site: Site, names: tuple[str, ...], report: Report) -> tuple[str, int | None, int]:
    """(source line without indentation, column of the mark, its length in code points)."""
    source = report.sources.get(site.file)
    if source is not None and source.state != "ok":
        return f"({_STATE_WORDS[source.state]})", None, 0
    lines = source.text.splitlines() if source is not None and source.text else []
    if not 0 < site.line <= len(lines):
        return site.code.splitlines()[0] if site.code else "", None, 0
    full = lines[site.line - 1]
    line = full.strip()
    if site.column is None:
        return line, None, 0
    indent = len(full) - len(full.lstrip())
    start = site.column - indent
    end = site.end_column - indent if site.end_line == site.line and site.end_column else len(line)
    inner = _find_name(line, names, start, end)
    if inner is not None:
        return line, *inner
    return line, max(start, 0), max(min(end, len(line)) - max(start, 0), 0)


_STATE_WORDS = {
    "changed": "the file has changed since it was loaded",
    "gone": "the file cannot be read",
}


def _find_name(line: str, names: tuple[str, ...], start: int, end: int) -> tuple[int, int] | None:
    """Where one of the names stands as a whole word within the expression, the last time."""
    for name in names:
        position = line.rfind(name, max(start, 0), end)
        while position >= 0:
            before = line[position - 1] if position else " "
            after = line[position + len(name)] if position + len(name) < len(line) else " "
            if not (before.isalnum() or before in "_.") and not (after.isalnum() or after == "_"):
                return position, len(name)
            position = line.rfind(name, max(start, 0), position)
    return None


def _shortened(
    code: str, column: int | None, length: int, room: int
) -> tuple[str, int | None, int]:
    """The code cut to fit, around its mark."""
    if column is None or column + length <= room - 1:
        return set_cell_size(code, room - 1) + "…", column, min(length, room)
    start = max(0, min(column - 4, len(code) - room + 2))
    piece = "…" + code[start:]
    if cell_len(piece) > room:
        piece = set_cell_size(piece, room - 1) + "…"
    return piece, column - start + 1, min(length, len(piece) - (column - start + 1))


def _tail(finding: Finding, report: Report, width: int) -> list[Line]:
    lines: list[Line] = []
    if finding.why:
        lines += _paragraph("why: ", finding.why, width)
    shown = finding.remedies[:2]
    for number, remedy in enumerate(shown):
        lines += _fix("fix: " if not number else "or:  ", remedy, width)
    if finding.avoid:
        lines += _paragraph("not a fix: ", finding.avoid, width)
    if finding.level != "note":
        lines.append(Line(((f"more: onegraph explain {finding.cause}", "dim"),)))
    return lines


def _fix(lead: str, remedy: Remedy, width: int) -> list[Line]:
    indent = " " * len(lead)
    title = remedy.title + (":" if remedy.edit else "")
    lines = _paragraph(lead, title, width)
    if remedy.edit:
        edit = remedy.edit.text
        last = lines[-1].text
        if cell_len(last) + 4 + cell_len(edit) <= width:
            lines[-1] = Line((*lines[-1].parts, ("    ", ""), (edit, "edit")))
        elif len(indent) + 2 + cell_len(edit) <= width:
            lines.append(Line(((indent + "  ", ""), (edit, "edit"))))
        else:
            for part in _wrap(edit, width - len(indent) - 2):
                lines.append(Line(((indent + "  ", ""), (part, "edit"))))
    note = {"same": "", "truncates": "", "changes": ""}[remedy.effect] + remedy.effect_note
    for part in _wrap(f"({note})", width - len(indent)):
        lines.append(Line(((indent, ""), (part, "dim"))))
    return lines


def _paragraph(lead: str, text: str, width: int, *, style: str = "") -> list[Line]:
    indent = " " * len(lead)
    parts = _wrap(text, width - len(lead))
    return [
        Line(((lead if not k else indent, "lead" if not k else ""), (part, style)))
        for k, part in enumerate(parts)
    ]


def _wrap(text: str, width: int) -> list[str]:
    """Break text to a display width; East Asian characters count two columns."""
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False) or [""]
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if cell_len(candidate) <= width:
            current = candidate
            continue
        if current:
            lines.append(current)
        while cell_len(word) > width:
            piece = set_cell_size(word, width).rstrip()
            piece = word[: max(len(piece), 1)]
            while cell_len(piece) > width:
                piece = piece[:-1]
            lines.append(piece)
            word = word[len(piece) :]
        current = word
    lines.append(current)
    return lines
