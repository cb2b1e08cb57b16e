"""Decision regions in the plane of two features, with rows, their boxes, and those that can be fooled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.forest_verification import Limits
from metasilvae.matching import check_width
from metasilvae.model import Model
from metasilvae.outcome import Outcome, Stability
from metasilvae.perturbation import Ball, Perturbation
from metasilvae.plots.canvas import new_figure, put_legend_below, say, say_entry, style
from metasilvae.plots.palette import blend, colour_names
from metasilvae.plots.slices import Plane, Rectangle, slice_model
from metasilvae.verification import ask, verify

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_HEIGHT = 4.0, 3.9, 0.55
MOST_ENTRIES = 16
# Beyond this, sums and differences of coordinates are no numbers any more.
LARGEST_VALUE = 1e300
WORDS = {Stability.STABLE: "stable", Stability.UNSTABLE: "unstable", Stability.UNKNOWN: "not decided"}
BOX_STYLES: dict[Stability, dict[str, Any]] = {
    Stability.STABLE: {"edgecolor": "#666666", "linewidth": 0.6},
    Stability.UNSTABLE: {"edgecolor": "black", "linewidth": 1.6},
    Stability.UNKNOWN: {"edgecolor": "black", "linewidth": 1.0, "linestyle": (0, (2, 1.5))},
}
MARKS: dict[bool, dict[str, Any]] = {
    True: {"marker": "o", "s": 20, "edgecolors": "white", "linewidths": 0.5},
    False: {"marker": "X", "s": 48, "edgecolors": "black", "linewidths": 0.8},
}
RIGHT_WORDS = {True: "right", False: "wrong"}


@dataclass(frozen=True)
class Panel:
    """One model in the plane.

    Attributes
    ----------
    lower, upper : float64 arrays, shape (n_samples, 2), or None
        The boxes of the rows, where there is a perturbation.
    """

    model: Model
    dataset: Dataset
    plane: Plane
    rectangles: list[Rectangle]
    outcome: Outcome
    lower: NDArray[np.float64] | None
    upper: NDArray[np.float64] | None

    @property
    def title(self) -> str:
        tally = self.outcome.tally
        figures = [f"accuracy {100 * float(tally.accuracy):.4g} %"]
        if self.lower is not None:
            bound = "at least " if tally.no_info else ""
            figures.append(f"stability {bound}{100 * float(tally.stability):.4g} %")
        return f"{say(self.model.source)}\n{', '.join(figures)}"


# What to draw


def choose_features(models: Sequence[Model], dataset: Dataset, wanted: Sequence[str] | None) -> tuple[int, int]:
    """The two features that were asked for, by name or by number; without, the only ones that the models test."""
    for model in models:
        check_width(model, dataset)
    if dataset.n_features < 2:
        raise DataError(f"{dataset.source}: has {dataset.n_features} feature; a plane needs two")
    if wanted is not None:
        first, second = (_find_feature(dataset, each) for each in wanted)
        if first == second:
            raise RequestError(f"--features {' '.join(wanted)}: both are the same feature; give two different ones")
        return first, second
    tested = sorted({int(feature) for model in models for feature in model.tested_features})
    if len(tested) > 2:
        names = ", ".join(dataset.feature_name(feature) for feature in tested[:5])
        more = f" and {len(tested) - 5} more" if len(tested) > 5 else ""
        who = f"{models[0].source} tests" if len(models) == 1 else "the models test"
        raise RequestError(
            f"{who} {len(tested)} features ({names}{more}), a plane has two; choose them with "
            "--features NAME NAME or by number from 0"
        )
    others = [feature for feature in range(dataset.n_features) if feature not in tested]
    first, second = sorted([*tested, *others][:2])
    return first, second


def _find_feature(dataset: Dataset, wanted: str) -> int:
    if dataset.feature_names and wanted in dataset.feature_names:
        return dataset.feature_names.index(wanted)
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 and int(wanted) < dataset.n_features:
        return int(wanted)
    raise RequestError(
        f"--features: {dataset.source} has no feature {say(wanted)!r}; give a column name or a number from 0 to "
        f"{dataset.n_features - 1}"
    )


def choose_plane(dataset: Dataset, features: tuple[int, int], row: int | None, perturbation: Perturbation) -> Plane:
    """The plane through a row, or through the medians, as large as all rows and their boxes need."""
    if row is not None and not 0 <= row < dataset.n_samples:
        raise RequestError(f"--row {row}: {dataset.source} has rows 0 to {dataset.n_samples - 1}")
    point = np.median(dataset.X, axis=0) if row is None else dataset.X[row]
    lower, upper = perturbed_bounds(dataset, features, perturbation)
    columns = dataset.X[:, list(features)]
    if not (np.abs(columns) < LARGEST_VALUE).all():
        raise DataError(f"{dataset.source}: its values are too large to be drawn; scale them with `data convert`")
    low, high = columns.min(axis=0), columns.max(axis=0)
    # A box without limits ends where the picture does.
    spread = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    low = np.maximum(lower.min(axis=0), low - spread) - 0.04 * spread
    high = np.minimum(upper.max(axis=0), high + spread) + 0.04 * spread
    return Plane(features, point, (float(low[0]), float(low[1])), (float(high[0]), float(high[1])))


def perturbed_bounds(
    dataset: Dataset, features: tuple[int, int], perturbation: Perturbation
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of the boxes in the plane, each of shape (n_samples, 2)."""
    boxes, plane = perturbation.boxes(dataset), list(features)
    with np.errstate(over="ignore"):
        lower = np.maximum(boxes.low_center[:, plane] - boxes.radius_down[plane], boxes.minimum[plane])
        upper = np.minimum(boxes.high_center[:, plane] + boxes.radius_up[plane], boxes.maximum[plane])
    return lower, upper


def survey(
    model: Model,
    dataset: Dataset,
    plane: Plane,
    perturbation: Perturbation | None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
) -> Panel:
    """Find the regions of a model and judge each row with all its features."""
    question = ask(model, dataset, perturbation or Ball(0.0), voting=voting)
    outcome = verify(question, jobs, limits=limits)
    rectangles = slice_model(model, plane, question.voting)
    if perturbation is None:
        return Panel(model, dataset, plane, rectangles, outcome, None, None)
    return Panel(model, dataset, plane, rectangles, outcome, *perturbed_bounds(dataset, plane.features, perturbation))


# Drawing


@style()
def draw_regions(panels: Sequence[Panel], row: int | None = None, title: str | None = None) -> Figure:
    """One panel for each model, side by side; a ring marks the row through which the plane goes, if it does."""
    figure = new_figure(PANEL_WIDTH * len(panels) + 0.3, PANEL_HEIGHT + LEGEND_HEIGHT)
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    dataset, plane = panels[0].dataset, panels[0].plane
    labels = list(dict.fromkeys([*(label for panel in panels for label in panel.model.labels), *dataset.labels]))
    colours = colour_names(labels)
    for axes, panel in zip(all_axes, panels, strict=True):
        _draw_panel(axes, panel, colours, row is not None)
        axes.set(xlabel=say(dataset.feature_name(plane.features[0])), title=panel.title)
    all_axes[0].set_ylabel(say(dataset.feature_name(plane.features[1])))
    is_slice = any(not {*panel.model.tested_features.tolist()} <= {*plane.features} for panel in panels)
    if title is not None:
        figure.suptitle(say(title, 200))
    elif is_slice:
        place = "the medians" if row is None else f"row {row}"
        figure.suptitle(f"slice through {place} of {say(dataset.source)}", fontsize="medium")
    _draw_legend(figure, panels, colours)
    return figure


def _draw_panel(axes: Axes, panel: Panel, colours: dict[str, str], rings_point: bool) -> None:
    plane, dataset, outcome = panel.plane, panel.dataset, panel.outcome
    by_answer: dict[tuple[str, ...], list[Rectangle]] = {}
    for rectangle in panel.rectangles:
        by_answer.setdefault(_named(panel.model, rectangle.answer), []).append(rectangle)
    for answer, rectangles in by_answer.items():
        patch = _outline((each.lower for each in rectangles), (each.upper for each in rectangles))
        patch.set(label="region " + " or ".join(answer), **_fill(answer, colours))
        axes.add_patch(patch)
    if panel.lower is not None and panel.upper is not None:
        low, high = np.maximum(panel.lower, plane.lower), np.minimum(panel.upper, plane.upper)
        for stability, box_style in BOX_STYLES.items():
            chosen = outcome.stability == stability
            if chosen.any():
                patch = _outline(low[chosen], high[chosen])
                patch.set(label=f"boxes {WORDS[stability]}", facecolor="none", **box_style)
                axes.add_patch(patch)
    columns = dataset.X[:, list(plane.features)]
    for is_right, mark in MARKS.items():
        chosen = outcome.is_correct == is_right
        if chosen.any():
            shown = [colours[dataset.labels[label]] for label in dataset.y[chosen]]
            name = f"rows {RIGHT_WORDS[is_right]}"
            # No row lies outside, and the same clipping for each dot would fill an SVG.
            axes.scatter(columns[chosen, 0], columns[chosen, 1], c=shown, zorder=3, label=name, clip_on=False, **mark)
    if rings_point:
        x, y = plane.point[list(plane.features)]
        axes.scatter(x, y, s=160, facecolors="none", edgecolors="black", zorder=4, label="row of the slice")
    axes.set(xlim=(plane.lower[0], plane.upper[0]), ylim=(plane.lower[1], plane.upper[1]))


def _named(model: Model, answer: Iterable[int]) -> tuple[str, ...]:
    return tuple(model.labels[label] for label in answer)


def _fill(answer: tuple[str, ...], colours: dict[str, str]) -> dict[str, Any]:
    """A light colour; tied answers are hatched."""
    hatch = {} if len(answer) == 1 else {"hatch": "//", "edgecolor": "white"}
    return {"facecolor": blend([colours[label] for label in answer], 0.6), "linewidth": 0, **hatch}


def _outline(lowers: Iterable[Sequence[float]], uppers: Iterable[Sequence[float]]) -> Any:
    """All rectangles as one shape: small, and without seams between neighbours."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = [
        [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1]), (low[0], low[1])]
        for low, high in zip(lowers, uppers, strict=True)
    ]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(corners)
    return PathPatch(Path(np.array(corners, dtype=np.float64).reshape(-1, 2), codes))


def _draw_legend(figure: Figure, panels: Sequence[Panel], colours: dict[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    answers = {_named(panel.model, each.answer): None for panel in panels for each in panel.rectangles}
    present = {label: None for panel in panels for label in (panel.dataset.labels[each] for each in panel.dataset.y)}
    shown = dict.fromkeys([*((label,) for label in present), *answers])
    handles: list[Any] = []
    for answer in sorted(
        shown, key=lambda each: (each not in answers, len(each), [list(colours).index(label) for label in each])
    ):
        edge = {"edgecolor": colours[answer[0]], "linewidth": 1.5} if len(answer) == 1 else {}
        handles.append(Patch(label=say_entry(" or ".join(answer), 28), **{**_fill(answer, colours), **edge}))
    if len(handles) > MOST_ENTRIES:
        handles = [*handles[:MOST_ENTRIES], Patch(facecolor="none", label=f"{len(handles) - MOST_ENTRIES} more")]
    for is_right, mark in MARKS.items():
        if any((panel.outcome.is_correct == is_right).any() for panel in panels):
            handles.append(
                Line2D(
                    [], [], linestyle="none", marker=mark["marker"], markersize=mark["s"] ** 0.5, color="#666666",
                    markeredgecolor=mark["edgecolors"], label=RIGHT_WORDS[is_right],
                )
            )  # fmt: skip
    for stability, box_style in BOX_STYLES.items():
        if any(panel.lower is not None and (panel.outcome.stability == stability).any() for panel in panels):
            handles.append(Patch(facecolor="none", label=WORDS[stability], **box_style))
    put_legend_below(figure, handles)
