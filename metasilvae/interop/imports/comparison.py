"""Comparison of an imported model with the library it came from.

Both predict rows of data, random rows, and rows on both sides of every threshold: the last number that goes left and
the first one that goes right, in float64 and in float32, on a path that leads to the split if there is one. Scores must
agree up to the rounding of sums, so that one wrong leaf of one tree is found even if it does not change a prediction.
A different prediction is an error unless the scores of both labels are closer than that rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError
from metasilvae.interop.imports.categories import CategoryRows
from metasilvae.interop.imports.imported import Imported, LibraryPredictor
from metasilvae.interop.thresholds import next_float32, next_number, round_down
from metasilvae.model import LeafKind, Model
from metasilvae.prediction import find_leaves
from metasilvae.voting import count_votes

RANDOM_ROWS = 2000
# Most rows beside thresholds: of the command, and where a comparison should take a second.
MAX_ROWS = 200_000
QUICK_ROWS = 20_000
_PARTS = {
    "data": "row of the data",
    "random": "random row",
    "missing": "random row with missing values",
    "thresholds": "row beside a threshold",
}
_CELLS_AT_ONCE = 1 << 21
# Few enough that the progress bar moves while a library with many trees predicts.
_MOST_ROWS_AT_ONCE = 1 << 14
_LARGEST = float(np.finfo(np.float64).max)
# Limit for tests on the paths to splits beyond the usual depth; only chains of thousands of splits reach it.
_MOST_STEPS = 1 << 28
_USUAL_DEPTH = 100
NO_CATEGORIES = CategoryRows(None)


@dataclass(frozen=True)
class LibraryComparison:
    """Numbers of compared rows, and of rows on which only rounding decides.

    Attributes
    ----------
    n_data, n_random, n_thresholds : int
        Rows of data, random rows (half of them with missing values, if the model takes them) and rows beside
        thresholds.
    n_splits, n_all_splits : int
        Splits with rows on both sides, and all splits; of large models only some are compared.
    max_rows : int
        The budget of rows beside thresholds.
    n_ties : int
        Rows for which the model predicts several labels, the library's among them.
    n_rounded : int
        Rows for which the library predicts another label because its sums are rounded.
    """

    library: str
    n_data: int
    n_random: int
    n_thresholds: int
    n_splits: int
    n_all_splits: int
    n_ties: int
    n_rounded: int
    max_rows: int = MAX_ROWS

    @property
    def n_rows(self) -> int:
        return self.n_data + self.n_random + self.n_thresholds

    @property
    def summary(self) -> str:
        """The comparison in a few words."""
        return f"compared with {self.library} on {self.n_rows} rows"


def compare_with_library(
    imported: Imported,
    X: NDArray[np.float64] | None = None,
    seed: int = 0,
    on_fraction: Callable[[float], object] = lambda fraction: None,
    max_rows: int = MAX_ROWS,
) -> LibraryComparison | None:
    """Compare the predictions of a model and of its library; a difference raises a `ModelError`.

    None if the library is not installed, or if the trees are too deep for it.

    Parameters
    ----------
    X : float64 array, shape (n_samples, n_features), or None
        Rows of data.
    on_fraction : function
        Called with the fraction of the rows that is compared, from 0 to 1.
    max_rows : int
        Most rows beside thresholds; if all splits have more, a random part of the splits is compared. Rows of data are
        all compared.
    """
    model, library = imported.model, None if imported.is_too_deep else imported.load_predictor()
    if library is None:
        return None
    if X is not None and X.shape[1] != model.n_features:
        raise ModelError(f"the data have {X.shape[1]} features, {model.source} has {model.n_features}")
    rng = np.random.default_rng(seed)
    sizes = dict.fromkeys(_PARTS, 0)
    n_ties = n_rounded = 0
    n_sides = 8 if library.is_float32 else 4  # of each split, as `rows_beside_thresholds` makes them
    splits = _choose_splits(model, max_rows // n_sides, _MOST_STEPS // n_sides, rng)
    n_missing = RANDOM_ROWS // 2 if model.has_directions else 0
    categories = CategoryRows(model.encoding)
    n_all = (0 if X is None else len(X)) + RANDOM_ROWS + n_sides * len(splits)
    parts: list[tuple[str, Iterator[NDArray[np.float64]]]] = [
        ("data", iter(()) if X is None else _pieces(X)),
        ("random", random_rows(model, RANDOM_ROWS - n_missing, rng, library.special, categories)),
        ("missing", rows_with_missing(model, n_missing, rng, splits, categories)),
        ("thresholds", rows_beside_thresholds(model, rng, X, library.is_float32, splits, categories)),
    ]
    for part, pieces in parts:
        for piece in pieces:
            if part != "data":
                np.clip(piece, -library.largest, library.largest, out=piece)
            # Libraries add huge values up to see whether all are finite.
            with np.errstate(over="ignore", invalid="ignore"):
                ties, rounded = _compare_rows(imported, library, np.ascontiguousarray(piece), part, categories)
            sizes[part] += len(piece)
            n_ties += ties
            n_rounded += rounded
            on_fraction(sum(sizes.values()) / n_all)
    n_rows = (sizes["data"], sizes["random"] + sizes["missing"], sizes["thresholds"])
    n_all_splits = model.n_nodes - model.n_leaves
    return LibraryComparison(library.name, *n_rows, len(splits), n_all_splits, n_ties, n_rounded, max_rows)


def _compare_rows(
    imported: Imported, library: LibraryPredictor, X: NDArray[np.float64], part: str, categories: CategoryRows
) -> tuple[int, int]:
    """Numbers of ties and of predictions that differ by rounding; any other difference is an error."""
    model = imported.model
    leaves = find_leaves(model, X)
    X = categories.decode(X)
    try:
        theirs = library.prediction(X)
        scores = None if library.score is None else library.score(X)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{model.source}: {library.name} refuses a {_PARTS[part]}: {reason}") from None
    rows = np.arange(len(X))
    sums, slack = _sum_scores(model, leaves, library.rounding)
    is_best = sums == sums.max(axis=1, keepdims=True)
    # Exact sums only where rounding could hide the winner.
    is_close = (sums >= sums.max(axis=1, keepdims=True) - slack[:, None]).sum(axis=1) > 1
    is_best[is_close] = count_votes(model, leaves[is_close], imported.voting)
    if scores is not None:
        distance = np.abs(scores - sums).max(axis=1)
        if not (distance <= slack).all():
            _refuse(imported, X, part, int(np.argmax(~(distance <= slack))), "the scores of its labels differ")
    is_predicted = is_best[rows, theirs]
    gap = sums.max(axis=1) - sums[rows, theirs]
    is_wrong = ~is_predicted & ~(gap <= slack)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        ours = " or ".join(model.labels[label] for label in np.flatnonzero(is_best[row]))
        _refuse(imported, X, part, row, f"the import predicts {ours}, {library.name} {model.labels[theirs[row]]}")
    return int((is_predicted & (is_best.sum(axis=1) > 1)).sum()), int((~is_predicted).sum())


def _refuse(imported: Imported, X: NDArray[np.float64], part: str, row: int, what: str) -> None:
    values = ", ".join(f"{value!r}" for value in X[row, :8].tolist()) + (", ..." if X.shape[1] > 8 else "")
    raise ModelError(
        f"{imported.model.source}: the import differs from its source: for a {_PARTS[part]} ({values}) {what}; "
        "so it is refused; please report it"
    )


def _sum_scores(
    model: Model, leaves: NDArray[np.int32], rounding: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score of each label in each row, and how far the library's may be off by rounding.

    A library adds one term per tree, rounding each time, and may send the sums through a function with values around 1
    before it compares.
    """
    terms = model.leaf_values.astype(np.float64)
    if model.leaf_kind is LeafKind.COUNTS:
        terms /= terms.sum(axis=1, keepdims=True) * model.n_trees
    largest = np.abs(terms).max(axis=1)
    sums = np.zeros((len(leaves), model.n_labels))
    sizes = np.zeros(len(leaves))
    for tree in range(model.n_trees):
        sums += terms[leaves[:, tree]]
        sizes += largest[leaves[:, tree]]
    return sums, 2 * (model.n_trees + model.n_labels + 4) * rounding * (sizes + 1)


def random_rows(
    model: Model,
    n_rows: int,
    rng: np.random.Generator,
    special: float = 0.0,
    categories: CategoryRows = NO_CATEGORIES,
) -> Iterator[NDArray[np.float64]]:
    """Rows spread over the range of the thresholds and somewhat beyond, in pieces; every other one has specials."""
    low, high = _ranges(model)
    for n_piece in _piece_sizes(n_rows, model.n_features):
        rows = rng.uniform(low, high, (n_piece, model.n_features))
        rows[::2][rng.random(rows[::2].shape) < 0.3] = special
        categories.fill(rows, rng)
        yield rows


def rows_with_missing(
    model: Model,
    n_rows: int,
    rng: np.random.Generator,
    splits: NDArray[np.intp],
    categories: CategoryRows = NO_CATEGORIES,
) -> Iterator[NDArray[np.float64]]:
    """Random rows without some values; every other one leads to a split whose value it lacks, where any can."""
    low, high = _ranges(model)
    takes_missing = model.takes_missing & categories.is_number(model.n_features)
    splits = splits[takes_missing[model.nodes["feature"][splits]]]
    for n_piece in _piece_sizes(n_rows if len(splits) else 0, model.n_features):
        rows = rng.uniform(low, high, (n_piece, model.n_features))
        nodes = splits[rng.integers(len(splits), size=n_piece)]
        possible = categories.everywhere(n_piece)
        _lead_to(model, nodes[::2], rows[::2], categories, {place: each[::2] for place, each in possible.items()})
        categories.fill(rows, rng, possible)
        is_missing = rng.random(rows.shape) < 0.3
        is_missing[::2] = rng.random(rows[::2].shape) < 0.05
        rows[is_missing & takes_missing] = np.nan
        rows[np.arange(n_piece), model.nodes["feature"][nodes]] = np.nan
        yield rows


def _choose_splits(model: Model, most: int, most_steps: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """All splits, or a random part of them if there are too many or the paths to them are too long."""
    splits = np.flatnonzero(model.nodes["feature"] >= 0)
    steps = np.maximum(model.depths.astype(np.int64) - _USUAL_DEPTH, 0)
    if len(splits) <= most and steps[splits].sum() <= most_steps:
        return splits
    mixed = rng.permutation(splits)[: max(1, most)]
    return np.sort(mixed[: max(1, int(np.searchsorted(np.cumsum(steps[mixed]), most_steps, side="right")))])


def rows_beside_thresholds(
    model: Model,
    rng: np.random.Generator,
    X: NDArray[np.float64] | None = None,
    is_float32: bool = True,
    splits: NDArray[np.intp] | None = None,
    categories: CategoryRows = NO_CATEGORIES,
) -> Iterator[NDArray[np.float64]]:
    """For each split, twice, rows that lead to it, where any can, and lie on both sides of its threshold; in pieces.

    They are the float64 neighbours, and the float32 neighbours if requested, of all or of the given splits.
    """
    low, high = _ranges(model)
    splits = np.repeat(np.flatnonzero(model.nodes["feature"] >= 0) if splits is None else splits, 2)
    start = 0
    for n_piece in _piece_sizes(len(splits), 4 * model.n_features):
        nodes = splits[start : start + n_piece]
        start += n_piece
        rows = rng.uniform(low, high, (n_piece, model.n_features))
        if X is not None and len(X):
            rows[::2] = X[rng.integers(len(X), size=len(rows[::2]))]
        possible = categories.everywhere(n_piece)
        _lead_to(model, nodes, rows, categories, possible)
        feature, threshold = model.nodes["feature"][nodes], model.nodes["threshold"][nodes]
        sides = [threshold, next_number(threshold)]
        if is_float32:
            last = round_down(threshold)
            sides += [last.astype(np.float64), next_float32(last, np.inf).astype(np.float64)]
        pieces = [rows.copy() for _ in sides]
        for number, (piece, side) in enumerate(zip(pieces, sides, strict=True)):
            piece[np.arange(n_piece), feature] = side
            on_side = {place: each.copy() for place, each in possible.items()}
            is_left = np.full(n_piece, number % 2 == 0)
            categories.narrow(on_side, np.arange(n_piece), feature, is_left)
            categories.fill(piece, rng, on_side)
        yield np.clip(np.concatenate(pieces), -_LARGEST, _LARGEST)


def _lead_to(
    model: Model,
    nodes: NDArray[np.intp],
    rows: NDArray[np.float64],
    categories: CategoryRows,
    possible: Mapping[int, NDArray[np.bool_]],
) -> None:
    """Move each row, as little as possible, so that it passes all tests above its node.

    Going up, a value is moved to the nearest end of one interval after another; as long as they have a number in
    common, it stays in those below. The categories that pass all tests are left in `possible`.
    """
    parents, tests = model.parents, model.nodes
    place = np.arange(len(nodes))
    below: NDArray[np.signedinteger] = nodes.copy()
    while len(place):
        above = parents[below]
        place, below, above = place[above >= 0], below[above >= 0], above[above >= 0]
        feature, threshold = tests["feature"][above], tests["threshold"][above]
        value = rows[place, feature]
        is_left = tests["left"][above] == below
        categories.narrow(possible, place, feature, is_left)
        rows[place, feature] = np.where(
            is_left, np.minimum(value, threshold), np.maximum(value, next_number(threshold))
        )
        below = above


def _ranges(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each feature a range that holds its thresholds and something on both sides."""
    inner = model.nodes[model.nodes["feature"] >= 0]
    low, high = np.full(model.n_features, np.inf), np.full(model.n_features, -np.inf)
    np.minimum.at(low, inner["feature"], inner["threshold"])
    np.maximum.at(high, inner["feature"], inner["threshold"])
    is_tested = low <= high
    low, high = np.where(is_tested, low, 0.0), np.where(is_tested, high, 0.0)
    low, high = np.clip(low, -_LARGEST / 8, _LARGEST / 8), np.clip(high, -_LARGEST / 8, _LARGEST / 8)
    margin = 0.1 * (high - low) + 1e-3 * np.maximum(np.abs(low), np.abs(high)) + (low == high)
    return low - margin, high + margin


def _piece_sizes(n_rows: int, n_columns: int) -> Iterator[int]:
    most = max(1, min(_CELLS_AT_ONCE // n_columns, _MOST_ROWS_AT_ONCE))
    for start in range(0, n_rows, most):
        yield min(most, n_rows - start)


def _pieces(X: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    start = 0
    for n_piece in _piece_sizes(*X.shape):
        yield X[start : start + n_piece]
        start += n_piece
