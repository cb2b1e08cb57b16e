"""Trees of an archive: accuracy against stability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from metasilvae.plots.canvas import new_figure, put_heading, put_legend_below, say, style
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
    most = max(leaves, default=1)
    figure = new_figure(7, 4.8)
    axes = figure.subplots()
    areas = [_area(number, most) for number in leaves]
    axes.scatter(stability, accuracy, s=areas, alpha=0.6, color=colour_of(0), clip_on=False)
    handles = [_entry(_area(number, most), _count(number), color=colour_of(0), alpha=0.6) for number in _steps(leaves)]
    if report.picked is not None:
        place = report.picked
        ring = {"markerfacecolor": "none", "markeredgecolor": colour_of(5)}
        axes.scatter(
            stability[place], accuracy[place], s=2 * areas[place], facecolors="none", edgecolors=colour_of(5),
            clip_on=False,
        )  # fmt: skip
        handles.append(_entry(100.0, f"{say(archive.files[place])}, {_count(leaves[place])}", **ring))
    axes.set(xlabel="stability", ylabel="accuracy")
    axes.margins(0.08)
    axes.grid(alpha=0.3)
    put_heading(
        figure, f"{say(archive.data, 200)}, {say(archive.perturbation, 200)}" if title is None else say(title, 200)
    )
    if handles:
        put_legend_below(figure, handles, handletextpad=1.0)
    return figure


def _area(n_leaves: int, most: int) -> float:
    small, large = MARKER_AREAS
    return small + (large - small) * n_leaves / most


def _steps(leaves: Sequence[int]) -> list[int]:
    """Sizes to explain the marks with: the least, the greatest, and one between them."""
    sizes = sorted(set(leaves))
    middle = min(sizes, key=lambda size: abs(2 * size - sizes[0] - sizes[-1]), default=0)
    return sorted({*sizes[:1], middle, *sizes[-1:]}) if sizes else []


def _count(n_leaves: int) -> str:
    return f"{n_leaves} lea{'f' if n_leaves == 1 else 'ves'}"


def _entry(area: float, label: str, **look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none", marker="o", markersize=area**0.5, label=label, **look)
