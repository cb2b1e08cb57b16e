"""What the drawing of a model needs, in bounded size: the first nodes of the first trees, level by level."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from metasilvae.export.wording import name_features
from metasilvae.model import LeafKind, Model
from metasilvae.page.pieces import show_decimal

# Nodes in a page: in all trees, and in one; each tree of a large forest gets at least its first levels.
MOST_NODES = 12000
MOST_NODES_OF_A_TREE = 2000
LEAST_NODES_OF_A_TREE = 63
# Classes that are shown of a node.
MOST_CLASSES = 6
Crossings = Sequence[Counter[tuple[int, float]]]


def describe_trees(model: Model, feature_names: Sequence[str] | None, crossings: Crossings) -> dict[str, Any]:
    """The drawing of a model as data.

    Parameters
    ----------
    crossings : sequence of Counter
        For each data set the number of unstable rows behind each test (feature, threshold).

    Returns
    -------
    dict
        ``nodes`` of a tree are lists: of a split its feature, its threshold, the positions of its children (none where
        they are not drawn), the number of leaves below, the distribution below and the crossings; of a leaf the labels
        that it answers and its values.
    """
    most = min(MOST_NODES_OF_A_TREE, max(LEAST_NODES_OF_A_TREE, MOST_NODES // model.n_trees))
    names = name_features(model, feature_names)
    trees, n_drawn = [], 0
    for position in range(model.n_trees):
        if n_drawn + LEAST_NODES_OF_A_TREE > MOST_NODES:
            break
        tree = _describe_tree(model.tree(position), most, crossings)
        n_drawn += len(tree["nodes"])
        trees.append(tree)
    used = sorted({node["feature"] for tree in trees for node in tree["nodes"] if "feature" in node})
    shown = sorted({label for tree in trees for node in tree["nodes"] for label in _labels_in(node)})
    return {
        "trees": trees,
        "total_trees": model.n_trees,
        "features": {str(feature): names[feature] for feature in used},
        "labels": {str(label): model.labels[label] for label in shown},
        "has_counts": model.leaf_kind is LeafKind.COUNTS,
    }


def _labels_in(node: dict[str, Any]) -> set[int]:
    return {label for label, _ in node.get("values", ())} | set(node.get("answer", ()))


def _describe_tree(tree: Model, most: int, crossings: Crossings) -> dict[str, Any]:
    """Nodes level by level, until there are too many."""
    # In pre-order a subtree is a range of nodes, so sums over its leaves are differences of running sums.
    leaf_places = np.flatnonzero(tree.nodes["feature"] < 0)
    values = tree.leaf_values[tree.nodes["leaf"][leaf_places]]
    has_counts = tree.leaf_kind is LeafKind.COUNTS
    running = (
        np.concatenate([np.zeros((1, tree.n_labels), np.int64), np.cumsum(values, axis=0)]) if has_counts else None
    )
    found: list[dict[str, Any]] = []
    todo = deque([(0, tree.n_nodes, -1, "")])
    n_planned = 1
    while todo:
        place, end, parent, side = todo.popleft()
        threshold, feature, left, right, leaf = tree.nodes[place].item()
        if parent >= 0:
            found[parent][side] = len(found)
        node: dict[str, Any] = {}
        if feature < 0:
            answers = tree.leaf_answers
            node["answer"] = list(answers.sets[answers.ids[leaf]])
            node |= _largest(tree.leaf_values[leaf])
        else:
            node["feature"] = feature
            node["threshold"] = show_decimal(threshold)
            node["leaves"] = (end - place + 1) // 2
            if running is not None:
                first, last = np.searchsorted(leaf_places, [place, end])
                node |= _largest(running[last] - running[first])
            crossed = [counts[feature, threshold] for counts in crossings]
            if any(crossed):
                node["crossed"] = crossed
            if n_planned + 2 <= most:
                n_planned += 2
                todo += [(left, right, len(found), "left"), (right, end, len(found), "right")]
        found.append(node)
    return {"nodes": found, "total": tree.n_nodes, "depth": tree.max_depth}


def _largest(values: np.ndarray) -> dict[str, Any]:
    """The sum of counts, and the largest of them by label; of scores all that are not 0, largest first."""
    shown = values.nonzero()[0]
    shown = shown[np.argsort(-values[shown], kind="stable")]
    largest: dict[str, Any] = {"values": [[int(label), values[label].item()] for label in shown[:MOST_CLASSES]]}
    if values.dtype.kind != "f":
        largest["rows"] = int(values.sum())
    return largest
