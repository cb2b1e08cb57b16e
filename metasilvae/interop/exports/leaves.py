"""Leaves in exports: the weights that they add to the scores of labels, and readable names.

The prediction of a model is the set of labels with the largest sum of weights. Fractions of counts, and scores, are
rational numbers; multiplied by their common denominator they are whole numbers, whose sums are exact in any language.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError
from metasilvae.model import LeafKind, Model
from metasilvae.voting import VOTINGS

MOST_BITS = 4096
MOST_VALUES_SHOWN = 8


def vote_weights(model: Model) -> NDArray[np.int64]:
    """One vote of each leaf for each label of its prediction, shape (n_leaves, n_labels)."""
    values = model.leaf_values
    return np.asarray(values == values.max(axis=1, keepdims=True), dtype=np.int64)


def real_weights(model: Model, voting: str) -> NDArray[np.float64]:
    """Votes, fractions or scores in float64, shape (n_leaves, n_labels)."""
    if model.n_trees == 1 or voting == "max":
        return vote_weights(model).astype(np.float64)
    values = model.leaf_values
    return values / values.sum(axis=1, keepdims=True) if model.leaf_kind is LeafKind.COUNTS else values


def whole_weights(model: Model, voting: str) -> list[list[int]]:
    """Votes, fractions or scores times their common denominator: exact whole numbers for each leaf and label."""
    exact = VOTINGS["max" if model.n_trees == 1 else voting].score(model).exact
    rows = [[exact(leaf, label) for label in range(model.n_labels)] for leaf in range(model.n_leaves)]
    scale = 1
    for denominator in {value.denominator for row in rows for value in row}:
        scale = math.lcm(scale, denominator)
        if scale.bit_length() > MOST_BITS:
            raise ModelError(
                f"{model.source}: the exact sums of its leaves need more than {MOST_BITS} bits; "
                "export it as ONNX, or with --voting max"
            )
    return [[int(value * scale) for value in row] for row in rows]


def check_directions(model: Model) -> None:
    """Refuse a model that takes missing values of some of its features only; exported predictors take all or none."""
    if model.has_directions and not model.takes_missing.all():
        feature = int(model.takes_missing.argmin())
        raise ModelError(
            f"{model.source}: has directions for missing values, but not for feature {feature}; a predictor that takes "
            "missing values of some features only cannot be exported (json, dot and text can)"
        )


def name_features(model: Model, feature_names: Sequence[str] | None) -> list[str]:
    """A name for each feature of the model; ``x[3]`` for a feature without one."""
    known = feature_names or model.description.feature_names or ()
    return [known[feature] if feature < len(known) else f"x[{feature}]" for feature in range(model.n_features)]


def name_prediction(model: Model, leaf: int) -> str:
    """The label that a leaf predicts, or all tied ones."""
    predictions = model.leaf_predictions
    return " or ".join(model.labels[label] for label in predictions.sets[predictions.ids[leaf]])


def name_values(model: Model, leaf: int) -> str:
    """Counts or scores of a leaf without the zeros; only the largest ones if there are many."""
    row = model.leaf_values[leaf]
    shown = row.nonzero()[0]
    is_cut = len(shown) > MOST_VALUES_SHOWN
    if is_cut:
        shown = sorted(shown[row[shown].argsort(kind="stable")[::-1][:MOST_VALUES_SHOWN]])
    parts = [
        f"{model.labels[label]}: {row[label]:g}" if row.dtype.kind == "f" else f"{model.labels[label]}: {row[label]}"
        for label in shown
    ]
    return ", ".join([*parts, "..."] if is_cut else parts) or "all scores 0"
