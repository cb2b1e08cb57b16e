"""How features and leaves are called in exported models."""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.model import Model

MOST_VALUES_SHOWN = 8


def name_features(model: Model, feature_names: Sequence[str] | None) -> list[str]:
    """A name for each feature that the model declares; ``x[3]`` where there is none."""
    known = feature_names or ()
    return [known[feature] if feature < len(known) else f"x[{feature}]" for feature in range(model.n_features)]


def name_answer(model: Model, leaf: int) -> str:
    """The label that a leaf answers, or all tied ones."""
    answers = model.leaf_answers
    return " or ".join(model.labels[label] for label in answers.sets[answers.ids[leaf]])


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
