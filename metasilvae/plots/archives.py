"""Trees of an archive: accuracy against stability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metasilvae.plots.canvas import new_figure, say, style
from metasilvae.plots.palette import colour_of
from metasilvae.report.archives import ArchiveReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Area of a marker in points, for the smallest and the largest tree of a picture.
MARKER_AREAS = (25.0, 400.0)


@style()
def draw_archive(report: ArchiveReport, title: str | None = None) -> Figure:
    """The larger the marker, the larger the tree. A ring marks the one that was picked."""
    archive = report.archive
    stability = [float(each.stability) for each in archive.figures]
    accuracy = [float(each.accuracy) for each in archive.figures]
    leaves = [each.leaves for each in archive.figures]
    small, large = MARKER_AREAS
    most = max(leaves, default=1)
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    areas = [small + (large - small) * number / most for number in leaves]
    axes.scatter(stability, accuracy, s=areas, alpha=0.6, color=colour_of(0), label=f"area: leaves, up to {most}")
    if report.picked is not None:
        place = report.picked
        axes.scatter(
            stability[place], accuracy[place], s=2 * areas[place], facecolors="none", edgecolors=colour_of(5),
            label=f"{archive.files[place]}, {leaves[place]} leaves",
        )  # fmt: skip
    axes.set(xlabel="stability", ylabel="accuracy")
    axes.set_title(say(title, 200) if title is not None else f"{say(archive.data)}, {say(archive.perturbation)}")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
