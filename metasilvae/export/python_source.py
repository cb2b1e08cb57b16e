"""A model as a Python module without any requirement, which answers exactly as the model does."""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.export.weights import whole_weights
from metasilvae.model import Model, name_kind

_BODY = '''\
"""A {kind}; exported by metasilvae."""

from math import isfinite

FEATURES = {features}
LABELS = {labels}
# A split is (feature, threshold, position of the right child), its left child is the next node; a leaf is a number.
NODES = [
{nodes}
]
ROOTS = {roots}
# What each leaf adds to the score of each label: whole numbers, so that sums are exact.
WEIGHTS = [
{weights}
]


def predict(x):
    """The labels that the model answers for a row of {n_features} finite numbers: several if they tie."""
    if len(x) != {n_features}:
        raise ValueError("%d numbers, expected {n_features}" % len(x))
    for value in x:
        if not isfinite(value):
            raise ValueError("%r is not a finite number" % value)
    scores = [0] * len(LABELS)
    for node in ROOTS:
        entry = NODES[node]
        while isinstance(entry, tuple):
            feature, threshold, right = entry
            node = node + 1 if x[feature] <= threshold else right
            entry = NODES[node]
        scores = [score + weight for score, weight in zip(scores, WEIGHTS[entry])]
    best = max(scores)
    return [label for label, score in zip(LABELS, scores) if score == best]


if __name__ == "__main__":
    import sys

    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                if "_" in line:
                    raise ValueError("%r holds an underscore" % line.strip())
                answer = predict([float(cell) for cell in (line.split(",") if "," in line else line.split())])
            except ValueError as error:
                sys.exit("line %d: %s" % (number, error))
            print(",".join(answer))
'''


def write_python(model: Model, feature_names: Sequence[str] | None, voting: str) -> str:
    """Python source of the predictor."""
    nodes = []
    for threshold, feature, _, right, leaf in model.nodes.tolist():
        nodes.append(f"    {leaf}," if feature < 0 else f"    ({feature}, {threshold!r}, {right}),")
    return _BODY.format(
        kind=f"{name_kind(True, model.n_trees)}, voting {voting}" if model.is_forest else "decision tree",
        features=ascii(list(feature_names)) if feature_names else None,
        labels=ascii(list(model.labels)),
        nodes="\n".join(nodes),
        roots=model.roots.tolist(),
        weights="\n".join(f"    {row}," for row in whole_weights(model, voting)),
        n_features=model.n_features,
    )
