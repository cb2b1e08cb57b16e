"""Splits by sets of categories as tests of features that are 0 or 1, one for each distinct set.

A reader gives the set of each such split. The columns that are split so become categories of an `Encoding`, which turns
a category into these features; no split is repeated and no tree grows. A set and its complement are one feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.encoding import CATEGORY, Column, Encoding
from metasilvae.errors import ModelError
from metasilvae.formats.silva_models import MAX_FEATURES
from metasilvae.interop.imports.builder import Nodes


@dataclass(frozen=True)
class CategorySplit:
    """Where a split by categories sends samples.

    Attributes
    ----------
    codes : frozenset of int
        Categories of one side, as the library numbers them; all others that a column lists go to the other side.
    is_left : bool
        Whether the categories of the set go to the left child.
    others_left, missing_left : bool
        Whether categories that the column does not list, and missing ones, go there.
    """

    codes: frozenset[int]
    is_left: bool = True
    others_left: bool = False
    missing_left: bool = False


@dataclass(frozen=True)
class CategoryColumn:
    """A feature of the library that is a category.

    Attributes
    ----------
    codes : tuple of int
        The library's numbers of its categories.
    names : tuple of str or None
        Their names; None if they are known by their numbers.
    has_missing : bool
        Whether the library takes missing categories.
    """

    codes: tuple[int, ...] = ()
    names: tuple[str, ...] | None = None
    has_missing: bool = True


def encode_categories(
    trees: Sequence[Nodes],
    n_features: int,
    names: Sequence[str] | None,
    columns: Mapping[int, CategoryColumn],
    source: str,
) -> tuple[list[Nodes], Encoding]:
    """Trees whose splits by categories test features that are 0 or 1, and how columns become these features.

    Parameters
    ----------
    n_features, names : features of the library, and their names
    columns : features of the library that are categories, by their numbers
    """
    if not 1 <= n_features <= MAX_FEATURES:
        raise ModelError(f"{source}: the model has {n_features} features; 1 to {MAX_FEATURES} are supported")
    if names is not None and len(names) != n_features:
        raise ModelError(f"{source}: {len(names)} names for {n_features} features; is it damaged?")
    for number, tree in enumerate(trees):
        if int(tree.feature.max(initial=-1)) >= n_features:
            raise ModelError(
                f"{source}: tree {number} tests feature {int(tree.feature.max())}, but the model has {n_features} "
                "features, from 0 on"
            )
    found = {feature: _Sets(_complete(column, feature, trees)) for feature, column in columns.items()}
    places: list[dict[int, tuple[int, bool]]] = []
    for tree in trees:
        splits = sorted((tree.categories or {}).items())
        places.append({node: found[int(tree.feature[node])].place(split) for node, split in splits})
    named = [f"x[{feature}]" for feature in range(n_features)] if names is None else list(map(str, names))
    encoding = Encoding(
        tuple(found[f].column(name) if f in found else Column(name) for f, name in enumerate(named)), ()
    )
    starts = np.array([*encoding.starts[:-1], -1])  # the last one for leaves, whose feature is -1
    return [_renumber(tree, of_tree, starts) for tree, of_tree in zip(trees, places, strict=True)], encoding


def _complete(column: CategoryColumn, feature: int, trees: Sequence[Nodes]) -> CategoryColumn:
    """The column with all categories that splits mention; without names if some of these have none."""
    mentioned: set[int] = set()
    for tree in trees:
        for node, split in (tree.categories or {}).items():
            if tree.feature[node] == feature:
                mentioned |= split.codes
    if column.names is not None and mentioned <= set(column.codes):
        return column
    return CategoryColumn(tuple(sorted(mentioned | {code for code in column.codes if code >= 0})))


class _Sets:
    """The distinct sets of a column."""

    def __init__(self, column: CategoryColumn) -> None:
        self._column = column
        self._numbers: dict[str, int] = {}

    def place(self, split: CategorySplit) -> tuple[int, bool]:
        """The number of the set of a split, and whether it is the set that goes left; -1 for a set of all or none."""
        codes = ((code in split.codes) == split.is_left for code in self._column.codes)
        flags = [*codes, split.others_left, *[split.missing_left] * self._column.has_missing]
        if all(flags) or not any(flags):
            return -1, flags[0]
        is_same = (2 * sum(flags), flags[-1]) <= (len(flags), False)
        text = "".join("01"[flag == is_same] for flag in flags)
        return self._numbers.setdefault(text, len(self._numbers)), is_same

    def column(self, name: str) -> Column:
        names = self._column.names
        texts = tuple(map(str, self._column.codes)) if names is None else names
        return Column(name, CATEGORY, texts, True, self._column.has_missing, tuple(self._numbers), names is None)


def _renumber(tree: Nodes, places: Mapping[int, tuple[int, bool]], starts: NDArray[np.int64]) -> Nodes:
    feature, threshold = starts[tree.feature], tree.threshold.copy()
    left, right = tree.left.copy(), tree.right.copy()
    missing_left = None if tree.missing_left is None else tree.missing_left.copy()
    for node, (number, is_left_set) in places.items():
        # 0 goes left: what is not in the set.
        threshold[node] = 0.0
        if number >= 0:
            feature[node] += number
            if is_left_set:
                left[node], right[node] = right[node], left[node]
        else:
            # All go one way; the builder removes such a split.
            threshold[node] = np.inf if is_left_set else -np.inf
        if missing_left is not None:
            missing_left[node] = number >= 0 or is_left_set
    return replace(
        tree, feature=feature, threshold=threshold, left=left, right=right, missing_left=missing_left, categories=None
    )


class CategoryRows:
    """Rows of encoded features that are possible, and the same rows as the library knows them.

    Parameters
    ----------
    encoding : Encoding or None
        Of the model; without one, features are those of the library.
    """

    def __init__(self, encoding: Encoding | None) -> None:
        self._encoding = encoding
        self._places = [] if encoding is None else [p for p, c in enumerate(encoding.columns) if c.sets is not None]

    def is_number(self, n_features: int) -> NDArray[np.bool_]:
        """Which features are numbers."""
        found = np.ones(n_features, dtype=np.bool_)
        for place in self._places:
            found[self._features(place)] = False
        return found

    def fill(
        self,
        rows: NDArray[np.float64],
        rng: np.random.Generator,
        possible: Mapping[int, NDArray[np.bool_]] | None = None,
    ) -> None:
        """Give each row a random category in each column, out of the possible ones if there are some."""
        for place in self._places:
            column = self._column(place)
            chances = rng.random((len(rows), len(column.values)))
            if possible is not None:
                chances[possible[place]] += 1.0
            self.set(rows, place, chances.argmax(axis=1))

    def set(self, rows: NDArray[np.float64], place: int, options: NDArray[np.intp]) -> None:
        features = self._features(place)
        rows[:, features.start : features.stop - 1] = self._column(place).table[options]
        rows[:, features.stop - 1] = options

    def everywhere(self, n_rows: int) -> dict[int, NDArray[np.bool_]]:
        """All categories of all columns, for each row."""
        return {place: np.ones((n_rows, len(self._column(place).values)), dtype=np.bool_) for place in self._places}

    def narrow(
        self,
        possible: Mapping[int, NDArray[np.bool_]],
        rows: NDArray[np.intp],
        feature: NDArray[np.int32],
        is_left: NDArray[np.bool_],
    ) -> None:
        """Leave the categories that pass tests of features; there is one test for each of the given rows."""
        for place in self._places:
            features = self._features(place)
            is_own = (feature >= features.start) & (feature < features.stop - 1)
            in_set = self._column(place).table[:, feature[is_own] - features.start].T
            possible[place][rows[is_own]] &= in_set != is_left[is_own, np.newaxis]

    def decode(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows as the library knows them: categories as numbers, unknown ones as a number that it does not know."""
        if self._encoding is None:
            return X
        raw = np.empty((len(X), len(self._encoding.columns)))
        for place, column in enumerate(self._encoding.columns):
            values = X[:, self._features(place).stop - 1]
            if column.sets is not None:
                values = codes_of(column)[values.astype(np.intp)]
            raw[:, place] = values
        return raw

    def _column(self, place: int) -> Column:
        assert self._encoding is not None
        return self._encoding.columns[place]

    def _features(self, place: int) -> slice:
        assert self._encoding is not None
        return slice(self._encoding.starts[place], self._encoding.starts[place + 1])


def codes_of(column: Column) -> NDArray[np.float64]:
    """The library's number of each value of a column: an unused one for unknown categories, NaN for missing ones."""
    n = len(column.categories)
    codes = [float(text) for text in column.categories] if column.is_numbered else list(map(float, range(n)))
    return np.array([*codes, max(codes, default=-1.0) + 1, *[np.nan] * column.has_missing])


def restore_cells(X: NDArray[np.float64], cells: Mapping[int, Sequence[object]]) -> NDArray[np.object_]:
    """Rows of numbers with the cells that libraries know instead of codes; NaN where they are missing.

    Parameters
    ----------
    cells : for each column that is a category its cells, in the order of their codes, and one that is no category
    """
    found = X.astype(object)
    for place, known in cells.items():
        found[:, place] = [known[int(code)] if code == code else np.nan for code in X[:, place].tolist()]
    return found


def unknown_cell(cells: Sequence[object]) -> object:
    """A cell of the type of the given ones that is none of them."""
    if all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells):
        return max(map(float, cells), default=0.0) + 1.0  # type: ignore[arg-type]
    return "".join(map(str, cells)) + "?"
