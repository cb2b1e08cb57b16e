"""A model as a JSON document that holds everything.

Keys of the document: ``kind`` ("tree" or "forest"), ``n_features``, ``feature_names`` (a list, or null where none are
known), ``labels``, ``leaf_kind`` ("counts" or "scores") and ``trees``. A tree is a flat list of nodes, its root first,
however deep it is. A split has ``feature`` (from 0), ``threshold``, ``left`` and ``right``: a sample goes to the node
at position ``left`` of the same list iff its feature is <= the threshold. A leaf has ``values``, one for each label,
and ``answer``, the list of labels with the largest value. Numbers read back to the same float64.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from metasilvae.model import LeafKind, Model


def write_json(model: Model, feature_names: Sequence[str] | None = None) -> str:
    """The whole model as JSON, each node on a line of its own."""
    head = {
        "kind": "forest" if model.is_forest else "tree",
        "n_features": model.n_features,
        "feature_names": None if feature_names is None else list(feature_names),
        "labels": list(model.labels),
        "leaf_kind": "counts" if model.leaf_kind is LeafKind.COUNTS else "scores",
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    trees = ["    [\n" + ",\n".join(_node_lines(model, position)) + "\n    ]" for position in range(model.n_trees)]
    return "\n".join(["{", *lines, '  "trees": [', ",\n".join(trees), "  ]", "}", ""])


def _node_lines(model: Model, position: int) -> list[str]:
    start = int(model.roots[position])
    end = int(model.roots[position + 1]) if position + 1 < model.n_trees else model.n_nodes
    answers = [json.dumps([model.labels[label] for label in labels]) for labels in model.leaf_answers.sets]
    lines = []
    for threshold, feature, left, right, leaf in model.nodes[start:end].tolist():
        if feature < 0:
            values = json.dumps(model.leaf_values[leaf].tolist())
            lines.append(f'      {{"values": {values}, "answer": {answers[model.leaf_answers.ids[leaf]]}}}')
        else:
            lines.append(
                f'      {{"feature": {feature}, "threshold": {threshold!r}, '
                f'"left": {left - start}, "right": {right - start}}}'
            )
    return lines
