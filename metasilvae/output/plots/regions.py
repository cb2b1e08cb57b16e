"""Decision regions in the plane of two features, with verified rows and their boxes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.importance import find_importances
from metasilvae.dataset import Dataset
from metasilvae.encoding import NUMBER
from metasilvae.errors import DataError, RequestError
from metasilvae.model import Model
from metasilvae.output.plots.canvas import (
    HEADING_SIZE,
    POINTS_PER_INCH,
    blend,
    colour_names,
    measure_text,
    new_figure,
    put_heading,
    put_legend_below,
    say,
    style,
    tell_apart,
    wrap,
)
from metasilvae.output.plots.slices import Plane, Rectangle, slice_model
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.prediction import check_width, predict
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Outcome, Stability, VerdictCounts
from metasilvae.verification.verifier import verify

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Labels of a region: one, or all tied ones.
Prediction = tuple[str, ...]
# Beyond this, sums and differences of coordinates overflow.
LARGEST_VALUE = 1e300
# Rows may be left out of the picture if the range of all values is so many times as large as that of all but this
# fraction at either end; of few rows none is.
FAR_OUT, OUTLIERS, FEWEST_FOR_OUTLIERS = 1.8, 0.02, 50
# A slice should have another prediction in this part of it; the points of a grid and slices that are tried.
LEAST_CONTRAST, GRID, MOST_SLICES = 0.04, 24, 60


@dataclass(frozen=True)
class Panel:
    """One model in the plane, with the rows that are drawn.

    Attributes
    ----------
    dataset, outcome : Dataset, Outcome
        Of the rows that are drawn.
    counts : VerdictCounts
        Of all rows that were verified.
    n_rows : int
        Number of all rows; if not all of them were verified, the title says so.
    perturbation : Perturbation or None
    lower, upper : float64 arrays, shape (n_samples, 2), or None
        The boxes of the rows, where there is a perturbation.
    """

    model: Model
    dataset: Dataset
    plane: Plane
    rectangles: list[Rectangle]
    outcome: Outcome
    counts: VerdictCounts
    n_rows: int
    perturbation: Perturbation | None = None
    lower: NDArray[np.float64] | None = None
    upper: NDArray[np.float64] | None = None

    @cached_property
    def regions(self) -> dict[Prediction, list[Rectangle]]:
        """Rectangles by prediction."""
        found: dict[Prediction, list[Rectangle]] = {}
        for rectangle in self.rectangles:
            found.setdefault(tuple(self.model.labels[label] for label in rectangle.prediction), []).append(rectangle)
        return found

    @property
    def title(self) -> str:
        """Metrics of the model on these rows, and their perturbation."""
        metrics = [f"accuracy {100 * float(self.counts.accuracy):.4g} %"]
        notes = []
        if self.perturbation is not None:
            bound = "at least " if self.counts.no_info else ""
            metrics.append(f"stability {bound}{100 * float(self.counts.stability):.4g} %")
            notes.append(_describe(self.perturbation))
        if self.counts.size < self.n_rows:
            notes.append(f"for {self.counts.size} of {self.n_rows} rows")
        elif self.dataset.n_samples < self.n_rows:
            notes.append(f"{self.dataset.n_samples} of {self.n_rows} rows are drawn")
        return "\n".join([", ".join(metrics), *([", ".join(notes)] if notes else [])])


def _describe(perturbation: Perturbation) -> str:
    is_plain = isinstance(perturbation, Ball) and not perturbation.is_cut
    return perturbation.describe().replace("l_inf", "epsilon") if is_plain else say(perturbation.describe())


# What to draw


def choose_features(
    models: Sequence[Model], dataset: Dataset, wanted: Sequence[str] | None, perturbation: Perturbation | None = None
) -> tuple[int, int]:
    """The two features that were asked for, by name or by number; without, the most important ones of the models.

    Features that the perturbation may change come first.
    """
    for model in models:
        check_width(model, dataset)
    if dataset.n_features < 2:
        raise DataError(f"{dataset.source}: has {dataset.n_features} feature; a plane needs two")
    if wanted is not None:
        first, second = (_find_feature(dataset, each) for each in wanted)
        if first == second:
            raise RequestError(f"--features {' '.join(wanted)}: both are the same feature; give two different ones")
        return first, second
    importances = np.zeros(dataset.n_features)
    for model in models:
        found = find_importances(model, dataset.X)[: dataset.n_features]
        importances[: len(found)] += found
    tested = {int(feature) for model in models for feature in model.tested_features}
    moves = np.ones(dataset.n_features, dtype=np.bool_)
    if perturbation is not None:
        boxes = perturbation.boxes(dataset)
        with np.errstate(over="ignore"):
            moves = (boxes.low_center - boxes.radius_down < boxes.high_center + boxes.radius_up).any(axis=0)
    # Numbers first: categories have no neighbours in a plane.
    ranked = sorted(
        range(dataset.n_features),
        key=lambda feature: (
            feature not in tested, not dataset.names.is_number(feature), not moves[feature], -importances[feature],
            feature,
        ),
    )  # fmt: skip
    first, second = sorted(ranked[:2])
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


def choose_plane(
    dataset: Dataset,
    features: tuple[int, int],
    row: int | None,
    perturbation: Perturbation,
    models: Sequence[Model] = (),
    voting: str | None = None,
) -> Plane:
    """The plane through a row or through typical values, as large as most rows and their boxes need.

    Parameters
    ----------
    row : int or None
        None takes the medians of numbers and the most frequent categories; if the models predict the same everywhere
        in this plane, it goes through a row for which they do not.
    models : sequence of Model
        The models that are drawn.
    """
    if row is not None and not 0 <= row < dataset.n_samples:
        raise RequestError(f"--row {row}: {dataset.source} has rows 0 to {dataset.n_samples - 1}")
    columns = dataset.X[:, list(features)]
    columns = columns[~np.isnan(columns).any(axis=1)]
    if not len(columns):
        raise DataError(f"{dataset.source}: no row has values of both features")
    if not (np.abs(columns) < LARGEST_VALUE).all():
        raise DataError(f"{dataset.source}: its values are too large to be drawn; scale them with `data convert`")
    lower, upper = (np.nan_to_num(bound, nan=0.0) for bound in perturbed_bounds(dataset, features, perturbation))
    low, high = _choose_window(columns)
    is_inside = ((dataset.X[:, list(features)] >= low) & (dataset.X[:, list(features)] <= high)).all(axis=1)
    # A box without limits ends where the picture does.
    spread = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    low = np.maximum(lower[is_inside].min(axis=0), low - spread) - 0.04 * spread
    high = np.minimum(upper[is_inside].max(axis=0), high + spread) + 0.04 * spread
    bounds = (float(low[0]), float(low[1])), (float(high[0]), float(high[1]))
    if row is not None:
        return Plane(features, dataset.X[row], *bounds, row)
    plane = Plane(features, _find_typical(dataset), *bounds)
    return _find_contrast(dataset, plane, models, voting)


def _choose_window(columns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least and largest values to draw; a few values that are far away from all others are left out."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    if len(columns) < FEWEST_FOR_OUTLIERS:
        return low, high
    inner = np.quantile(columns, [OUTLIERS, 1 - OUTLIERS], axis=0)
    width = inner[1] - inner[0]
    has_outliers = (width > 0) & (high - low > FAR_OUT * width)
    return np.where(has_outliers, inner[0], low), np.where(has_outliers, inner[1], high)


def _find_typical(dataset: Dataset) -> NDArray[np.float64]:
    """Medians of numbers, and the most frequent category of each column that has categories."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        point = np.nanmedian(dataset.X, axis=0)
    if dataset.encoding is None:
        return point
    for place, column in enumerate(dataset.encoding.columns):
        if column.kind != NUMBER:
            own = list(dataset.encoding.features_of(place))
            found, counts = np.unique(dataset.X[:, own], axis=0, return_counts=True)
            point[own] = found[np.argmax(counts)]
    return point


def _find_contrast(dataset: Dataset, plane: Plane, models: Sequence[Model], voting: str | None) -> Plane:
    """The plane, or if the models predict one label in it, a parallel one through a row where they predict more."""
    if not models or _measure_contrast(plane, models, voting) >= LEAST_CONTRAST:
        return plane
    rows = np.unique(np.linspace(0, dataset.n_samples - 1, MOST_SLICES).round().astype(np.intp)).tolist()
    found = [replace(plane, point=dataset.X[row], row=row) for row in rows]
    contrasts = [_measure_contrast(each, models, voting) for each in found]
    best = int(np.argmax(contrasts))
    return found[best] if contrasts[best] > _measure_contrast(plane, models, voting) else plane


def _measure_contrast(plane: Plane, models: Sequence[Model], voting: str | None) -> float:
    """The part of the plane that does not have the most frequent prediction, on a coarse grid; the least of models."""
    steps = [np.linspace(plane.lower[axis], plane.upper[axis], GRID) for axis in (0, 1)]
    X = np.tile(plane.point, (GRID * GRID, 1))
    X[:, plane.features[0]] = np.tile(steps[0], GRID)
    X[:, plane.features[1]] = np.repeat(steps[1], GRID)
    shares = []
    for model in models:
        ids = predict(model, X, voting if model.is_forest else None).ids
        shares.append(1 - np.bincount(ids).max() / len(ids))
    return float(min(shares))


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
    drawn: NDArray[np.intp] | None = None,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Panel:
    """Find the regions of a model and verify each row with all its features.

    Parameters
    ----------
    drawn : int array or None
        The rows to draw, None for all. All rows of a tree are verified, of a forest only these.
    """
    query = make_query(model, dataset, perturbation or Ball(0.0), voting=voting)
    rows = np.arange(dataset.n_samples) if drawn is None else drawn
    rows = rows[plane.contains(dataset.X[rows])]
    if model.n_trees == 1:
        whole = verify(query, jobs, budget=budget)
        counts, outcome = whole.counts, whole.subset(rows)
    else:
        outcome = verify(query.subset(rows), jobs, budget=budget)
        counts = outcome.counts
    part = dataset.subset(rows)
    rectangles = slice_model(model, plane, query.voting)
    bounds = (None, None) if perturbation is None else perturbed_bounds(part, plane.features, perturbation)
    return Panel(model, part, plane, rectangles, outcome, counts, dataset.n_samples, perturbation, *bounds)


# Inches; the sides of the axes are about these.
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_HEIGHT = 4.0, 4.1, 0.55
AXES_SIDES = (3.4, 3.1)
# With more predictions, regions show their names, and the legend has those without room for one.
MOST_ENTRIES = 16
NAME_SIZE, NAME_LINE = 6.5, 0.11
# Rectangles of a prediction that are tried for its name.
MOST_PLACES = 20
# Labels have at most 31 bytes; only ties may have longer names.
LONGEST_PREDICTION = 66
# Lines of boxes that would cover more of the picture than this are thin and transparent.
MOST_INK = 0.75
THINNEST, FAINTEST = 0.25, 0.2
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
RIGHT_WORDS = {True: "correct", False: "wrong"}
# Where boxes are crowded, the edges of rows show their stability.
CROWD_EDGES: dict[Stability, tuple[str, float]] = {
    Stability.STABLE: ("white", 0.4),
    Stability.UNSTABLE: ("black", 1.1),
    Stability.UNKNOWN: ("#777777", 1.1),
}


@dataclass(frozen=True)
class _Look:
    """What all panels of a picture share: colours of labels, and how much of a panel the lines of boxes would cover."""

    colours: dict[str, str]
    ink: float

    @property
    def is_crowded(self) -> bool:
        return self.ink > MOST_INK

    def box(self, stability: Stability) -> dict[str, Any]:
        plain = BOX_STYLES[stability]
        if not self.is_crowded:
            return plain
        visible = MOST_INK / self.ink
        width = plain["linewidth"] * max(visible, THINNEST)
        return {**plain, "linewidth": width, "alpha": min(max(2 * visible, FAINTEST), 0.5)}

    def fill(self, prediction: Prediction) -> dict[str, Any]:
        """A light colour; tied predictions are hatched."""
        hatch = {} if len(prediction) == 1 else {"hatch": "//", "edgecolor": "white"}
        return {"facecolor": blend([self.colours[label] for label in prediction], 0.6), "linewidth": 0, **hatch}


@style()
def draw_regions(panels: Sequence[Panel], title: str | None = None) -> Figure:
    """One panel for each model, side by side; a ring marks the row through which the plane goes, if it does."""
    row = panels[0].plane.row
    figure = new_figure(PANEL_WIDTH * len(panels) + 0.3, PANEL_HEIGHT + LEGEND_HEIGHT)
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    dataset, plane = panels[0].dataset, panels[0].plane
    labels = list(dict.fromkeys([*(label for panel in panels for label in panel.model.labels), *dataset.labels]))
    look = _Look(colour_names(labels), max(map(_measure_ink, panels)))
    names = tell_apart([panel.model.source for panel in panels])
    for axes, panel, name in zip(all_axes, panels, names, strict=True):
        _draw_panel(axes, panel, look, row)
        heading = [line for words in (name, panel.title) for line in wrap(words, PANEL_WIDTH - 0.5, HEADING_SIZE)]
        axes.set_title("\n".join(heading), fontsize=HEADING_SIZE)
        axes.set_xlabel(say(dataset.feature_name(plane.features[0])))
        if not dataset.names.is_number(plane.features[0]):
            axes.set_xticks([0, 1], ["no", "yes"])
    all_axes[0].set_ylabel(say(dataset.feature_name(plane.features[1])))
    if not dataset.names.is_number(plane.features[1]):
        all_axes[0].set_yticks([0, 1], ["no", "yes"])
    put_heading(figure, _default_heading(panels, row) if title is None else say(title, 200))
    predictions = _list_predictions(panels, look)
    if len(predictions) > MOST_ENTRIES:
        named = [_name_regions(axes, panel) for axes, panel in zip(all_axes, panels, strict=True)]
        predictions = [prediction for prediction in predictions if not any(prediction in each for each in named)]
    put_legend_below(figure, [*_prediction_entries(predictions, look), *_row_entries(panels, row, look)])
    return figure


def _default_heading(panels: Sequence[Panel], row: int | None) -> str:
    """What the picture is a slice of, if it is one."""
    dataset, plane = panels[0].dataset, panels[0].plane
    if all({*panel.model.tested_features.tolist()} <= {*plane.features} for panel in panels):
        return ""
    typical = "the medians" if dataset.encoding is None else "typical values"
    return f"slice through {typical if row is None else f'row {row}'} of {say(dataset.source, 200)}"


# Panels


def _clip_boxes(panel: Panel) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    if panel.lower is None or panel.upper is None:
        return None
    return np.maximum(panel.lower, panel.plane.lower), np.minimum(panel.upper, panel.plane.upper)


def _measure_ink(panel: Panel) -> float:
    """The fraction of a panel that the lines of its boxes would cover if they did not overlap."""
    bounds = _clip_boxes(panel)
    if bounds is None:
        return 0.0
    widths = np.array([BOX_STYLES[stability]["linewidth"] for stability in sorted(Stability)])
    boxes = np.unique(np.column_stack([*bounds, widths[panel.outcome.stability]]), axis=0)
    fractions = (boxes[:, 2:4] - boxes[:, :2]) / np.subtract(panel.plane.upper, panel.plane.lower)
    # A side covers its length times the width of its line; both as fractions of the panel.
    width, height = AXES_SIDES
    covered = 2 * (fractions[:, 0] / height + fractions[:, 1] / width) * boxes[:, 4] / POINTS_PER_INCH
    return float(covered.sum())


def _draw_panel(axes: Axes, panel: Panel, look: _Look, row: int | None) -> None:
    plane = panel.plane
    for prediction, rectangles in panel.regions.items():
        patch = _outline((each.lower for each in rectangles), (each.upper for each in rectangles))
        patch.set(label="region " + " or ".join(prediction), **look.fill(prediction))
        axes.add_patch(patch)
    bounds = _clip_boxes(panel)
    if bounds is not None:
        for stability in BOX_STYLES:
            chosen = panel.outcome.stability == stability
            if chosen.any():
                patch = _outline(bounds[0][chosen], bounds[1][chosen])
                patch.set(label=f"boxes {WORDS[stability]}", facecolor="none", **look.box(stability))
                axes.add_patch(patch)
    _draw_rows(axes, panel, look)
    if row is not None:
        x, y = plane.point[list(plane.features)]
        axes.scatter(x, y, s=160, facecolors="none", edgecolors="black", zorder=4, label="row of the slice")
    axes.set(xlim=(plane.lower[0], plane.upper[0]), ylim=(plane.lower[1], plane.upper[1]))


def _draw_rows(axes: Axes, panel: Panel, look: _Look) -> None:
    dataset, outcome = panel.dataset, panel.outcome
    columns = dataset.X[:, list(panel.plane.features)]
    for is_right, mark in MARKS.items():
        chosen = outcome.is_correct == is_right
        if not chosen.any():
            continue
        shown = [look.colours[dataset.labels[label]] for label in dataset.y[chosen]]
        edges: dict[str, Any] = {}
        if look.is_crowded:
            kinds = [CROWD_EDGES[Stability(each)] for each in outcome.stability[chosen]]
            edges = {"edgecolors": [colour for colour, _ in kinds], "linewidths": [width for _, width in kinds]}
        # No row lies outside, and the same clipping for each dot would fill an SVG.
        axes.scatter(
            columns[chosen, 0], columns[chosen, 1], c=shown, zorder=3, label=f"rows {RIGHT_WORDS[is_right]}",
            clip_on=False, **{**mark, **edges},
        )  # fmt: skip


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


# Names of regions


def _name_regions(axes: Axes, panel: Panel) -> set[Prediction]:
    """Write its prediction into each region that has room; returns the predictions that are written."""
    named = set()
    for prediction, rectangles in panel.regions.items():
        found = _find_room(say(" or ".join(prediction), LONGEST_PREDICTION), rectangles, panel.plane)
        if found is None:
            continue
        rectangle, lines = found
        middle, top = (rectangle.lower[0] + rectangle.upper[0]) / 2, rectangle.upper[1]
        axes.text(
            middle, top, "\n".join(lines), ha="center", va="top", fontsize=NAME_SIZE, zorder=5, linespacing=1.0,
            bbox={"facecolor": "white", "alpha": 0.5, "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
        named.add(prediction)
    return named


def _find_room(name: str, rectangles: Sequence[Rectangle], plane: Plane) -> tuple[Rectangle, list[str]] | None:
    """The largest rectangle that a name fits into, and its lines there."""
    scale = np.array(AXES_SIDES) / np.subtract(plane.upper, plane.lower)
    sides = np.array([np.subtract(each.upper, each.lower) for each in rectangles]) * scale
    for place in np.argsort(-sides.prod(axis=1), kind="stable")[:MOST_PLACES]:
        width, height = sides[place] - 0.04
        if width < measure_text("mm", NAME_SIZE):
            continue
        lines = wrap(name, width, NAME_SIZE)
        if len(lines) * NAME_LINE <= height:
            return rectangles[place], lines
    return None


# Legend


def _list_predictions(panels: Sequence[Panel], look: _Look) -> list[Prediction]:
    """Predictions of the models, then labels that no model predicts; in the order of the labels, ties last."""
    predictions = {prediction for panel in panels for prediction in panel.regions}
    present = {(panel.dataset.labels[label],) for panel in panels for label in np.unique(panel.dataset.y)}
    order = {label: position for position, label in enumerate(look.colours)}
    return sorted(
        predictions | present, key=lambda each: (each not in predictions, len(each), [order[label] for label in each])
    )


def _prediction_entries(predictions: Sequence[Prediction], look: _Look) -> list[Any]:
    from matplotlib.patches import Patch

    entries = []
    for prediction in predictions[:MOST_ENTRIES]:
        edge = {"edgecolor": look.colours[prediction[0]], "linewidth": 1.5} if len(prediction) == 1 else {}
        entries.append(
            Patch(label=say(" or ".join(prediction), LONGEST_PREDICTION), **{**look.fill(prediction), **edge})
        )
    if len(predictions) > MOST_ENTRIES:
        entries.append(Patch(facecolor="none", label=f"{len(predictions) - MOST_ENTRIES} more without room for a name"))
    return entries


def _row_entries(panels: Sequence[Panel], row: int | None, look: _Look) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def dot(label: str, marker: str, size: float, **edge: Any) -> Line2D:
        look = {"linestyle": "none", "color": "#999999", **edge}
        return Line2D([], [], marker=marker, markersize=size**0.5, label=label, **look)

    entries: list[Any] = []
    for is_right, mark in MARKS.items():
        if any((panel.outcome.is_correct == is_right).any() for panel in panels):
            edge = "white" if look.is_crowded else mark["edgecolors"]
            entries.append(dot(RIGHT_WORDS[is_right], mark["marker"], mark["s"], markeredgecolor=edge))
    for stability in BOX_STYLES:
        if not any(panel.perturbation is not None and (panel.outcome.stability == stability).any() for panel in panels):
            continue
        entries.append(Patch(facecolor="none", label=WORDS[stability], **{**look.box(stability), "alpha": None}))
        if look.is_crowded and stability is not Stability.STABLE:
            colour, width = CROWD_EDGES[stability]
            look_of_edge = {"markeredgecolor": colour, "markeredgewidth": width}
            entries.append(dot(f"{WORDS[stability]} row", "o", MARKS[True]["s"], **look_of_edge))
    if row is not None:
        entries.append(dot(f"row {row}", "o", 160, markerfacecolor="none", markeredgecolor="black"))
    return entries
