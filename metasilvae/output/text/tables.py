"""Tables as aligned text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence

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
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _columns(records), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in record.items()} for record in records)
    return stream.getvalue()


def as_json(records: Sequence[Record]) -> str:
    return json.dumps(list(map(dict, records)), indent=2) + "\n"


TABLE_FORMATS: dict[str, Callable[[Sequence[Record]], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "csv": as_csv,
}
