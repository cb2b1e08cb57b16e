"""Archives of trees as tables, CSV, JSON and plots."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass

from metasilvae.pareto_folder import StoredArchive, describe
from metasilvae.report.tables import TABLE_FORMATS, Record

# Area of a marker in points, for the smallest and the largest tree of a picture.
MARKER_AREAS = (25.0, 400.0)


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


def draw_archive(report: ArchiveReport, plot_format: str) -> bytes:
    """Accuracy against stability; the larger the marker, the larger the tree. A ring marks the one that was picked."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    archive = report.archive
    stability = [float(each.stability) for each in archive.figures]
    accuracy = [float(each.accuracy) for each in archive.figures]
    leaves = [each.leaves for each in archive.figures]
    small, large = MARKER_AREAS
    most = max(leaves, default=1)
    # Without a salt, names inside an SVG would differ from run to run.
    with rc_context({"svg.hashsalt": "metasilvae"}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        areas = [small + (large - small) * number / most for number in leaves]
        axes.scatter(stability, accuracy, s=areas, alpha=0.5, label=f"area: leaves, up to {most}")
        if report.picked is not None:
            place = report.picked
            axes.scatter(
                stability[place], accuracy[place], s=2 * areas[place], facecolors="none", edgecolors="C3",
                label=f"{archive.files[place]}, {leaves[place]} leaves",
            )  # fmt: skip
        axes.set(xlabel="stability", ylabel="accuracy", title=f"{archive.data}, {archive.perturbation}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        stream = io.BytesIO()
        metadata = {"Date": None} if plot_format == "svg" else {"CreationDate": None} if plot_format == "pdf" else None
        figure.savefig(stream, format=plot_format, dpi=150, metadata=metadata)
    return stream.getvalue()
