"""Records of trainings: tables of studies (`train --table`) and logs of steps (`train --log`).

A table has a line for each training, as CSV with a header or as a JSON list of objects; docs/formats.md lists the
columns. A log has a line of JSON for each step.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metasilvae.errors import DataError, RequestError, at_line, shorten
from metasilvae.io.memory import JSON_EXPANSION, TABLE_EXPANSION
from metasilvae.io.storage import display_name, read_source, strip_compression

TABLE_ENDINGS = {".csv": "csv", ".json": "json"}
TEST_PREFIX = "test_"
METRICS = ("seconds", "fitness", "accuracy", "stability", "leaves")


@dataclass(frozen=True)
class StudyTable:
    """Trainings and their metrics; `lines` holds the line of each in the file."""

    source: str
    records: list[dict[str, Any]]
    lines: list[int]

    @property
    def has_test(self) -> bool:
        return all(f"{TEST_PREFIX}accuracy" in record for record in self.records)

    def column(self, name: str) -> list[float]:
        """The numbers of a column; missing and other values are refused."""
        return [self._number(record, name, line) for record, line in zip(self.records, self.lines, strict=True)]

    def sets(self) -> list[str]:
        """The data set of each training; the table itself if it has no such column."""
        return [str(record.get("set") or self.source) for record in self.records]

    def _number(self, record: dict[str, Any], name: str, line: int) -> float:
        if name not in record:
            raise DataError(
                f"{self.source}: has no column {name!r}, only {', '.join(map(str, record))}; "
                "`metasilvae train --table` writes tables for plots"
            )
        value = record[name]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise DataError(
                at_line(self.source, line, f"{name} is {shorten(str(value))}, a finite number was expected")
            )
        return number


def choose_table_format(path: str) -> str:
    """The format of a table by the ending of its file."""
    suffix = Path(strip_compression(path)).suffix.lower()
    if suffix not in TABLE_ENDINGS:
        raise RequestError(f"{path}: a table is a file that ends in {' or '.join(TABLE_ENDINGS)}")
    return TABLE_ENDINGS[suffix]


def read_table(source: str) -> StudyTable:
    """Read CSV or JSON, recognized by the first character."""
    name = display_name(source)
    try:
        text = read_source(source, TABLE_EXPANSION).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{name}: is not UTF-8 text; give a table as CSV or JSON") from None
    table = _parse_json(text, name) if text.lstrip()[:1] in ("[", "{") else _parse_csv(text, name)
    if not table.records:
        raise DataError(f"{name}: holds no trainings; `metasilvae train --table {name}` writes them")
    return table


def _parse_json(text: str, name: str) -> StudyTable:
    try:
        records = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: is not JSON ({error})") from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{name}: a table in JSON is a list of objects, one for each training")
    return StudyTable(name, records, list(range(1, len(records) + 1)))


def _parse_csv(text: str, name: str) -> StudyTable:
    reader = csv.reader(io.StringIO(text, newline=""))
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    header: Sequence[str] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = cells
            elif len(cells) != len(header):
                raise DataError(
                    at_line(name, reader.line_num, f"has {len(cells)} cells, the header has {len(header)} columns")
                )
            else:
                records.append(dict(zip(header, cells, strict=True)))
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(at_line(name, reader.line_num, f"cannot be read as CSV: {error}")) from None
    return StudyTable(name, records, lines)


@dataclass(frozen=True)
class LoggedRun:
    """The steps of one seed.

    Attributes
    ----------
    phases : list of str
        Name of the phase that each step belongs to.
    metrics : dict
        For each of `METRICS` one number for each step.
    """

    source: str
    seed: int
    phases: list[str] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})

    @property
    def n_steps(self) -> int:
        return len(self.phases)


def read_log(source: str) -> list[LoggedRun]:
    """The runs of a log, in order of their first steps; an incomplete last line is ignored."""
    name = display_name(source)
    runs: dict[int, LoggedRun] = {}
    for number, document in _read_lines(io.BytesIO(read_source(source, JSON_EXPANSION)), name):
        seed, phase = document.get("seed"), document.get("phase")
        if not isinstance(seed, int) or not isinstance(phase, str):
            raise DataError(at_line(name, number, "has no seed and phase; give a file that `train --log` wrote"))
        run = runs.setdefault(seed, LoggedRun(name, seed))
        for metric, values in run.metrics.items():
            value = document.get(metric)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                found = "missing" if value is None else f"{shorten(str(value))}"
                raise DataError(at_line(name, number, f"{metric} is {found}, a finite number was expected"))
            values.append(float(value))
        run.phases.append(phase)
    if not runs:
        raise DataError(f"{name}: holds no steps of a training; `metasilvae train --log {name}` writes them")
    return list(runs.values())


def _read_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            if not line.endswith(b"\n"):
                return  # a running or killed training leaves an incomplete line
            document = None
        if not isinstance(document, dict):
            found = shorten(line.decode(errors="replace").strip())
            problem = f"{found} is not a step of a training; give a file that `train --log` wrote"
            raise DataError(at_line(name, number, problem))
        yield number, document
