"""Turns recorded instructions into places in the user's source, exactly or not at all."""

from __future__ import annotations

import linecache
import os
import tokenize
from collections.abc import Iterable
from types import CodeType

from onegraph.recorder.sites import Instruction, SiteTable, stamp
from onegraph.trace import Frame, Site, Source

LARGEST = 2_000_000


class Places:
    """Spells instructions as sites, reading each file once."""

    def __init__(self, table: SiteTable, folder: str, texts: dict[str, str] | None = None) -> None:
        self._table = table
        self._folder = folder
        self._lines: dict[str, list[str]] = {}
        self.sources: dict[str, Source] = {}
        self._texts = texts or {}

    def file(self, filename: str) -> str:
        """The name of a file as a report prints it: relative when below the folder."""
        if filename.startswith("<"):
            return filename
        path = os.path.abspath(filename)
        folder = self._folder + os.sep
        return path[len(folder) :] if path.startswith(folder) else path

    def frame(self, instruction: Instruction) -> Frame:
        """One level of a call chain, with the exact columns where Python knows them."""
        code, lasti = instruction
        line, end_line, column, end_column = _position(code, lasti)
        lines = self._read(code.co_filename)
        if column is not None and end_column is not None and end_line is not None:
            column = _points(lines, line, column)
            end_column = _points(lines, end_line, end_column)
        return Frame(
            self.file(code.co_filename), line, code.co_qualname, column, end_line, end_column
        )

    def site(self, chain: tuple[Instruction, ...], via: str | None = None) -> Site:
        """A recorded expression."""
        frames = tuple(self.frame(instruction) for instruction in chain)
        head = frames[0]
        lines = self._read(chain[0][0].co_filename)
        return Site(
            file=head.file,
            line=head.line,
            column=head.column,
            end_line=head.end_line,
            end_column=head.end_column,
            function=head.function,
            code=_excerpt(lines, head),
            frames=frames,
            via=via,
        )

    def _read(self, filename: str) -> list[str]:
        known = self._lines.get(filename)
        if known is not None:
            return known
        text, state = "", "ok"
        before = self._table.stamps.get(filename)
        now = stamp(filename)
        if filename in self._texts:
            text = self._texts[filename]
        elif now is None:
            # A notebook cell, or a file that is gone: what the interpreter still holds.
            text = "".join(linecache.getlines(filename))
            state = "ok" if text and filename.startswith("<") else "gone"
        elif now[1] <= LARGEST:
            try:
                with tokenize.open(filename) as stream:
                    text = stream.read()
            except (OSError, SyntaxError, UnicodeDecodeError):
                text = ""
            if before is not None and before != now:
                state = "changed"
        lines = text.splitlines()
        self._lines[filename] = [] if state == "changed" else lines
        name = self.file(filename)
        self.sources[name] = Source("" if state == "changed" else text, state)  # type: ignore[arg-type]
        return self._lines[filename]


def _position(code: CodeType, lasti: int) -> tuple[int, int | None, int | None, int | None]:
    for index, (line, end_line, column, end_column) in enumerate(code.co_positions()):
        if index == lasti // 2:
            return line or code.co_firstlineno, end_line, column, end_column
    return code.co_firstlineno, None, None, None


def _points(lines: list[str], line: int, column: int) -> int:
    """Python counts columns in UTF-8 bytes; reports count code points."""
    if not 0 < line <= len(lines):
        return column
    return len(lines[line - 1].encode()[:column].decode(errors="ignore"))


def _excerpt(lines: list[str], frame: Frame) -> str:
    if not 0 < frame.line <= len(lines):
        return ""
    if frame.column is None or frame.end_line is None or frame.end_column is None:
        return lines[frame.line - 1].strip()
    if frame.end_line == frame.line:
        return lines[frame.line - 1][frame.column : frame.end_column]
    parts = [lines[frame.line - 1][frame.column :]]
    parts += lines[frame.line : frame.end_line - 1]
    if frame.end_line <= len(lines):
        parts.append(lines[frame.end_line - 1][: frame.end_column])
    return "\n".join(parts)


def chains(table: SiteTable, numbers: Iterable[int]) -> dict[int, tuple[Instruction, ...]]:
    """The chains of the given sites, those without a user line left out."""
    return {n: table.chains[n] for n in numbers if 0 < n < len(table.chains)}
