"""What a picture of decision regions shows: models in the plane of two features, and rows as they were judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.forest_verification import Limits
from metasilvae.matching import check_width
from metasilvae.model import Model
from metasilvae.outcome import Outcome, Tally
from metasilvae.perturbation import Ball, Perturbation
from metasilvae.plots.canvas import say
from metasilvae.plots.slices import Plane, Rectangle, slice_model
from metasilvae.verification import ask, verify

# Labels of a region: one, or all tied ones.
Answer = tuple[str, ...]
# Beyond this, sums and differences of coordinates are no numbers any more.
LARGEST_VALUE = 1e300


@dataclass(frozen=True)
class Panel:
    """One model in the plane, with the rows that are drawn.

    Attributes
    ----------
    dataset, outcome : Dataset, Outcome
        Of the rows that are drawn.
    tally : Tally
        Of all rows that were judged.
    n_rows : int
        How many there are; where not all of them were judged, the title says so.
    perturbation : Perturbation or None
    lower, upper : float64 arrays, shape (n_samples, 2), or None
        The boxes of the rows, where there is a perturbation.
    """

    model: Model
    dataset: Dataset
    plane: Plane
    rectangles: list[Rectangle]
    outcome: Outcome
    tally: Tally
    n_rows: int
    perturbation: Perturbation | None = None
    lower: NDArray[np.float64] | None = None
    upper: NDArray[np.float64] | None = None

    @cached_property
    def regions(self) -> dict[Answer, list[Rectangle]]:
        """Rectangles by what the model answers in them."""
        found: dict[Answer, list[Rectangle]] = {}
        for rectangle in self.rectangles:
            found.setdefault(tuple(self.model.labels[label] for label in rectangle.answer), []).append(rectangle)
        return found

    @property
    def title(self) -> str:
        """What the model is worth on these rows, and what was done to them."""
        figures = [f"accuracy {100 * float(self.tally.accuracy):.4g} %"]
        notes = []
        if self.perturbation is not None:
            bound = "at least " if self.tally.no_info else ""
            figures.append(f"stability {bound}{100 * float(self.tally.stability):.4g} %")
            notes.append(_describe(self.perturbation))
        if self.tally.size < self.n_rows:
            notes.append(f"for {self.tally.size} of {self.n_rows} rows")
        elif self.dataset.n_samples < self.n_rows:
            notes.append(f"{self.dataset.n_samples} of {self.n_rows} rows are drawn")
        return "\n".join([", ".join(figures), *([", ".join(notes)] if notes else [])])


def _describe(perturbation: Perturbation) -> str:
    is_plain = isinstance(perturbation, Ball) and not perturbation.is_cut
    return perturbation.describe().replace("l_inf", "epsilon") if is_plain else say(perturbation.describe())


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
    drawn: NDArray[np.intp] | None = None,
    voting: str | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
) -> Panel:
    """Find the regions of a model and judge each row with all its features.

    Parameters
    ----------
    drawn : int array or None
        The rows to draw, None for all. A tree is judged on all rows all the same; a forest, which may
        take long, on these.
    """
    question = ask(model, dataset, perturbation or Ball(0.0), voting=voting)
    rows = np.arange(dataset.n_samples) if drawn is None else drawn
    if model.n_trees == 1:
        whole = verify(question, jobs, limits=limits)
        tally, outcome = whole.tally, whole.subset(rows)
    else:
        outcome = verify(question.subset(rows), jobs, limits=limits)
        tally = outcome.tally
    part = dataset.subset(rows)
    rectangles = slice_model(model, plane, question.voting)
    bounds = (None, None) if perturbation is None else perturbed_bounds(part, plane.features, perturbation)
    return Panel(model, part, plane, rectangles, outcome, tally, dataset.n_samples, perturbation, *bounds)
