"""Exports for people and scripts: JSON, Graphviz and indented text.

Keys of the JSON document: ``kind`` ("tree" or "forest"), ``n_features``, ``feature_names`` (a list or null),
``labels``, ``leaf_kind`` ("counts" or "scores") and ``trees``. A tree is a flat list of nodes with its root first. A
split has ``feature`` (from 0), ``threshold``, ``left`` and ``right``: a sample goes to the node at position ``left`` of
the same list if and only if its feature is <= the threshold. In a model that takes missing values it also has
``missing``: "left" or "right". A leaf has ``values``, one for each label, and
``prediction``, the list of labels with the largest value. Numbers read back to the same float64.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from metasilvae.encoding import FeatureNames
from metasilvae.formats.silva_models import format_model
from metasilvae.formats.text import shortest_decimals
from metasilvae.interop.exports.leaves import name_prediction, name_values
from metasilvae.model import LeafKind, Model, direction_of, tell_missing

INDENT = "  "
# Deeper lines show their depth as a number, so that a long chain stays readable and its text small.
DEEPEST_INDENT = 24


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
    trees = ["    [\n" + ",\n".join(_node_lines(model, *bounds)) + "\n    ]" for bounds in model.tree_bounds]
    return "\n".join(["{", *lines, '  "trees": [', ",\n".join(trees), "  ]", "}", ""])


def _node_lines(model: Model, start: int, end: int) -> list[str]:
    predictions = [json.dumps([model.labels[label] for label in labels]) for labels in model.leaf_predictions.sets]
    lines = []
    for threshold, feature, left, right, leaf in model.nodes[start:end].tolist():
        if feature < 0:
            values = json.dumps(model.leaf_values[leaf].tolist())
            lines.append(f'      {{"values": {values}, "prediction": {predictions[model.leaf_predictions.ids[leaf]]}}}')
        else:
            direction = direction_of(leaf)
            missing = "" if direction is None else f', "missing": "{direction}"'
            lines.append(
                f'      {{"feature": {feature}, "threshold": {threshold!r}, '
                f'"left": {left - start}, "right": {right - start}{missing}}}'
            )
    return lines


def write_silva(model: Model, feature_names: Sequence[str] | None = None) -> str:
    """silva's own format, with a description of the model behind it if there is one."""
    names = model.description.feature_names if feature_names is None else tuple(feature_names)
    return format_model(replace(model, description=replace(model.description, feature_names=names)))


def write_dot(model: Model, feature_names: Sequence[str] | None = None) -> str:
    """Graphviz text with a cluster for each tree of a forest; the left branch is the one on which the test holds."""
    names = FeatureNames.of(feature_names, model.n_features, model.encoding)
    nodes = model.nodes
    thresholds = list(shortest_decimals(nodes["threshold"]))
    lines = ["digraph model {", '  node [shape=box, fontname="sans-serif"];', '  edge [fontname="sans-serif"];']
    for position, (start, end) in enumerate(model.tree_bounds):
        if model.is_forest:
            lines.append(f'  subgraph cluster_{position} {{ label="tree {position}";')
        for node in range(start, end):
            threshold, feature, left, right, leaf = nodes[node].item()
            if feature < 0:
                text = f"{_escape(name_prediction(model, leaf))}\\n{_escape(name_values(model, leaf))}"
                lines.append(f'  n{node} [label="{text}", style=rounded];')
            else:
                test, _ = names.describe_test(feature, threshold, thresholds[node])
                lines.append(f'  n{node} [label="{_escape(test)}"];')
                yes, no = _or_missing("yes", "no", tell_missing(names, feature, threshold, leaf))
                lines.append(f'  n{node} -> n{left} [label="{yes}"];')
                lines.append(f'  n{node} -> n{right} [label="{no}"];')
        if model.is_forest:
            lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _or_missing(yes: str, no: str, direction: str | None) -> tuple[str, str]:
    """The texts of both branches of a split, with missing values on their side."""
    return f"{yes} or missing" if direction == "left" else yes, f"{no} or missing" if direction == "right" else no


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def write_text(model: Model, feature_names: Sequence[str] | None = None) -> str:
    """Indented text: each test on its own line, its branch below it with more indentation."""
    names = FeatureNames.of(feature_names, model.n_features, model.encoding)
    thresholds = list(shortest_decimals(model.nodes["threshold"]))
    lines: list[str] = []
    for position, root in enumerate(model.roots.tolist()):
        if model.is_forest:
            lines.append(f"tree {position}")
        # Texts are printed, nodes are turned into texts and nodes.
        todo: list[tuple[int, str | int]] = [(int(model.is_forest), root)]
        while todo:
            depth, item = todo.pop()
            if isinstance(item, str):
                lines.append(_indent(depth) + item)
                continue
            threshold, feature, left, right, leaf = model.nodes[item].item()
            if feature < 0:
                lines.append(f"{_indent(depth)}-> {name_prediction(model, leaf)}  ({name_values(model, leaf)})")
                continue
            words = names.describe_test(feature, threshold, thresholds[item])
            yes, no = _or_missing(*words, tell_missing(names, feature, threshold, leaf))
            todo += [(depth + 1, right), (depth, no), (depth + 1, left), (depth, yes)]
    return "\n".join([*lines, ""])


def _indent(depth: int) -> str:
    return INDENT * depth if depth <= DEEPEST_INDENT else f"{INDENT * DEEPEST_INDENT}[{depth}] "
