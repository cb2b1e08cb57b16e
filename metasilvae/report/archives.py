"""Archives of trees as tables, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from metasilvae.pareto_folder import StoredArchive, describe
from metasilvae.report.tables import TABLE_FORMATS, Record


@dataclass(frozen=True)
class ArchiveReport:
    """An archive and the position of the tree that was picked from it, if one was."""

    archive: StoredArchive
    picked: int | None = None

    @property
    def records(self) -> list[Record]:
        """Of all trees, or of the one that was picked."""
        records: list[Record] = [
            {"tree": name, **describe(figures, self.archive.fitness), "leaves": figures.leaves, "depth": figures.depth}
            for name, figures in zip(self.archive.files, self.archive.figures, strict=True)
        ]
        return records if self.picked is None else [records[self.picked]]


def describe_archive(folder: str, n_trees: int) -> str:
    """One line about an archive that was written."""
    if not n_trees:
        return f"no tree was judged on held-out rows before the end, so there is none in {folder}"
    what = "1 tree that no other one beats was" if n_trees == 1 else f"{n_trees} trees that no other one beats were"
    return f"{what} written to {folder}"


def _write_table(report: ArchiveReport, table_format: str) -> str:
    archive = report.archive
    if not archive.files:
        return f"{archive.folder}: no trees\n"
    n_rows = archive.figures[0].rows
    n_trees = "1 tree" if len(archive.files) == 1 else f"{len(archive.files)} trees"
    shown = n_trees if report.picked is None else f"1 of {n_trees}"
    head = f"{shown} on {archive.data} ({n_rows} {archive.rows}), {archive.perturbation}"
    return f"{head}\n\n{TABLE_FORMATS[table_format](report.records)}"


def _write_json(report: ArchiveReport) -> str:
    archive = report.archive
    document = {
        "folder": archive.folder,
        "data": archive.data,
        "rows": archive.rows,
        "perturbation": archive.perturbation,
        "trees": list(map(dict, report.records)),
    }
    return json.dumps(document, indent=2) + "\n"


ARCHIVE_FORMATS: dict[str, Callable[[ArchiveReport], str]] = {
    "text": lambda report: _write_table(report, "text"),
    "markdown": lambda report: _write_table(report, "markdown"),
    "json": _write_json,
    "csv": lambda report: TABLE_FORMATS["csv"](report.records),
}
