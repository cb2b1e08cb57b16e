"""How records are printed: tables as text, Markdown, CSV or JSON, and long lists of rows piece by piece."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Cell = str | int | float | None
Record = Mapping[str, Cell]


def _show(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _columns(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record))


def _is_number(value: Cell) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_words(records: Sequence[Record]) -> list[Record]:
    """The same records with names of columns for people."""
    return [{name.replace("_", " "): value for name, value in record.items()} for record in records]


def as_text(records: Sequence[Record]) -> str:
    """Aligned columns: numbers to the right, words to the left."""
    names = _columns(records)
    lines = [names, *([_show(record.get(name)) for name in names] for record in records)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    to_right = [any(_is_number(record.get(name)) for record in records) for name in names]

    def align(line: list[str]) -> str:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_right, strict=True)
        )
        return "  ".join(cells).rstrip()

    return "\n".join(map(align, lines)) + "\n"


def as_markdown(records: Sequence[Record]) -> str:
    names = _columns(records)
    to_right = [any(_is_number(record.get(name)) for record in records) for name in names]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    ruler = "|" + "|".join("---:" if right else "---" for right in to_right) + "|"
    body = [line([_show(record.get(name)) for name in names]) for record in records]
    return "\n".join([line(names), ruler, *body]) + "\n"


def as_csv(records: Sequence[Record]) -> str:
    shown = ({name: "" if value is None else value for name, value in record.items()} for record in records)
    return "".join(stream_csv(_columns(records), shown))


def as_json(records: Sequence[Record]) -> str:
    return dump_json(list(map(dict, records)))


def dump_json(document: object) -> str:
    """A document for people and programs; see `finite_or_none` for numbers."""
    return json.dumps(document, indent=1) + "\n"


def finite_or_none(value: float | None) -> float | None:
    """A number for JSON, which has no infinite ones."""
    return value if value is not None and math.isfinite(value) else None


TABLE_FORMATS: dict[str, Callable[[Sequence[Record]], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "csv": as_csv,
}

# Rows formatted at a time, so that a long report needs little memory.
ROWS_PER_PIECE = 4096


def stream_csv(names: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """CSV with a header; lists are joined by commas, missing values are empty."""
    return stream_lines(_lines(names, records))


def _lines(names: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    yield names
    for record in records:
        cells = (record.get(name, "") for name in names)
        yield [",".join(cell) if isinstance(cell, list) else cell for cell in cells]


def stream_lines(lines: Iterable[Sequence[object]]) -> Iterator[str]:
    """CSV of cells, piece by piece."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for number, line in enumerate(lines):
        writer.writerow(line)
        if number % ROWS_PER_PIECE == 0:
            yield stream.getvalue()
            stream.seek(0)
            stream.truncate()
    yield stream.getvalue()


def stream_jsonl(records: Iterable[Mapping[str, Any]], summary: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A line for each record, the last one with a summary if there is one."""
    yield from in_pieces(json.dumps(record) + "\n" for record in records)
    if summary is not None:
        yield json.dumps({"summary": summary}) + "\n"


def in_pieces(lines: Iterable[str]) -> Iterator[str]:
    """Lines joined to fewer, longer texts."""
    piece: list[str] = []
    for line in lines:
        piece.append(line)
        if len(piece) == ROWS_PER_PIECE:
            yield "".join(piece)
            piece = []
    yield "".join(piece)
