"""The section about the model: facts, and the data of its drawing, in bounded size."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.summaries import summarize_model
from metasilvae.encoding import LARGEST_NUMBER, FeatureNames
from metasilvae.model import LeafKind, Model, name_kind, tell_missing
from metasilvae.output.html.content import PageContent, order_labels
from metasilvae.output.html.markup import (
    Child,
    Markup,
    cut_name,
    element,
    embed_json,
    join,
    list_names,
    make_note,
    show_decimal,
)

# Maximum number of nodes in a page and in one tree; each tree of a large forest gets at least its first levels.
MOST_NODES = 12000
MOST_NODES_OF_A_TREE = 2000
LEAST_NODES_OF_A_TREE = 63
# Classes that are shown of a node.
MOST_CLASSES = 6
# Classes that a legend names.
MOST_COLOURS = 40
# Well below the largest integer that a sum can hold.
LARGEST_SUM = 2.0**62
Crossings = Sequence[Counter[int]]


def describe_trees(model: Model, feature_names: Sequence[str] | None, crossings: Crossings) -> dict[str, Any]:
    """The drawing of a model as data.

    Parameters
    ----------
    crossings : sequence of Counter
        For each data set, the number of unstable rows whose adversarial example flips the test of each node.

    Returns
    -------
    dict
        ``trees``, the names of the ``features`` and ``labels`` in them, and the first labels in the order of a
        ``legend``. Of a tree its ``depth``, its ``total`` of
        nodes, and those ``nodes`` that are drawn. A split has a feature, a threshold, ``words`` for its two branches if
        the feature stands for a category, positions of its children (none
        where they are not drawn), the number of leaves below, the distribution below, and crossings if there are any;
        a leaf has the labels that it predicts (the first of them, and the number of others) and its values.
    """
    most = min(MOST_NODES_OF_A_TREE, max(LEAST_NODES_OF_A_TREE, MOST_NODES // model.n_trees))
    names = FeatureNames.of(feature_names, model.n_features, model.encoding)
    trees, n_drawn = [], 0
    for position in range(model.n_trees):
        if n_drawn + LEAST_NODES_OF_A_TREE > MOST_NODES:
            break
        tree = _describe_tree(model.tree(position), most, int(model.roots[position]), crossings, names)
        n_drawn += len(tree["nodes"])
        trees.append(tree)
    used = sorted({node["feature"] for tree in trees for node in tree["nodes"] if "feature" in node})
    shown = sorted({label for tree in trees for node in tree["nodes"] for label in _labels_in(node)})
    legend = order_labels(model.labels[label] for label in shown)
    return {
        "trees": trees,
        "features": {str(feature): cut_name(names.names[feature]) for feature in used},
        "labels": {str(label): cut_name(model.labels[label]) for label in shown},
        "legend": [model.labels.index(label) for label in legend[:MOST_COLOURS]],
    }


def _labels_in(node: dict[str, Any]) -> set[int]:
    return {label for label, _ in node.get("values", ())} | set(node.get("prediction", ()))


def _describe_tree(tree: Model, most: int, start: int, crossings: Crossings, names: FeatureNames) -> dict[str, Any]:
    """Nodes level by level, until there are too many; `start` is the place of the root in the whole model."""
    leaf_places = np.flatnonzero(tree.nodes["feature"] < 0)
    running = _add_up(tree, leaf_places)
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
            prediction = tree.leaf_predictions.sets[tree.leaf_predictions.ids[leaf]]
            node["prediction"] = prediction[:MOST_CLASSES]
            if len(prediction) > MOST_CLASSES:
                node["more"] = len(prediction) - MOST_CLASSES
            node |= _largest(tree.leaf_values[leaf])
        else:
            node["feature"] = feature
            node["threshold"] = show_decimal(threshold)
            if not names.is_number(feature) or threshold == LARGEST_NUMBER:
                node["words"] = [cut_name(each) for each in names.describe_test(feature, threshold, signs=("≤", ">"))]
            direction = tell_missing(names, feature, threshold, leaf)
            if direction is not None:
                node["missing"] = direction
            node["leaves"] = (end - place + 1) // 2
            if running is not None:
                first, last = np.searchsorted(leaf_places, [place, end])
                node |= _largest(running[last] - running[first])
            crossed = [counts[start + place] for counts in crossings]
            if any(crossed):
                node["crossed"] = crossed
            if n_planned + 2 <= most:
                n_planned += 2
                todo += [(left, right, len(found), "left"), (right, end, len(found), "right")]
        found.append(node)
    return {"nodes": found, "total": tree.n_nodes, "depth": tree.max_depth}


def _add_up(tree: Model, leaf_places: NDArray[np.intp]) -> NDArray[np.int64] | None:
    """Running sums of the counts, leaf by leaf; None for scores, and for counts whose sum is too large.

    In pre-order a subtree is a range of nodes, so that the sum over its leaves is a difference of two of these.
    """
    values = tree.leaf_values[tree.nodes["leaf"][leaf_places]]
    if tree.leaf_kind is not LeafKind.COUNTS or values.sum(dtype=np.float64) > LARGEST_SUM:
        return None
    return np.concatenate([np.zeros((1, tree.n_labels), np.int64), np.cumsum(values, axis=0)])


def _largest(values: np.ndarray) -> dict[str, Any]:
    """The sum of counts, and the largest of them by label; of scores all that are not 0, largest first."""
    shown = values.nonzero()[0]
    shown = shown[np.argsort(-values[shown], kind="stable")]
    largest: dict[str, Any] = {"values": [[int(label), values[label].item()] for label in shown[:MOST_CLASSES]]}
    if values.dtype.kind != "f":
        largest["rows"] = sum(values.tolist())
    return largest


# Labels that are listed.
MOST_LABELS = 10
HINT = (
    "Drag to move, pinch to zoom; the wheel zooms while a node is selected, or with Ctrl. Click or Enter folds and "
    "unfolds a node, arrow keys move between nodes, + and - zoom, 0 fits the drawing to its frame. "
    "Numbers are rounded to 6 digits."
)
NO_SCRIPT = (
    "The drawing needs JavaScript; the rest of this page works without it. `metasilvae export MODEL --to text` "
    "prints the model."
)


def show_model(content: PageContent) -> Markup:
    """Size and shape of the model, and a drawing that can be moved, zoomed and folded."""
    crossings = [each.attribution.crossed_nodes for each in content.assessments]
    drawing = describe_trees(content.model, content.feature_names, crossings)
    drawing["sets"] = [cut_name(name) for name in content.short_names]
    n_drawn = len(drawing["trees"])
    buttons = [
        element("button", label, type="button", data_action=action, aria_label=description)
        for label, action, description in (
            ("Fit", "fit", "Fit the drawing into its frame"),
            ("+", "in", "Zoom in"),
            ("\N{MINUS SIGN}", "out", "Zoom out"),
            ("Unfold", "unfold", "Unfold all nodes"),
            ("Fold", "fold", "Fold all nodes"),
        )
    ]
    first = _choose_first(content.model, n_drawn)
    options = [
        element("option", _name_tree(number, tree["total"], content.model), value=number, selected=number == first)
        for number, tree in enumerate(drawing["trees"])
    ]
    drawing["first"] = first
    chooser = element("label", "Tree ", element("select", options, id="tree-choice")) if n_drawn > 1 else None
    missing = content.model.n_trees - n_drawn
    note = f"The last {missing} trees are not drawn, to keep the page small." if missing else None
    return join(
        _show_facts(content.model, content.voting),
        element("div", chooser, element("div", buttons, role="group", aria_label="Drawing"), class_="tools"),
        element("div", id="drawing", class_="drawing"),
        element("ul", id="class-colors", class_="legend", aria_label="Colours of classes"),
        element("p", id="tree-extent", class_="note"),
        make_note(note) if note else None,
        element("div", id="node-details", class_="details", aria_live="polite"),
        make_note(HINT),
        element("noscript", element("p", NO_SCRIPT, class_="warning")),
        embed_json("tree-data", drawing),
    )


def _choose_first(model: Model, n_drawn: int) -> int:
    """The tree to open the page with.

    The first tree of a boosted model is often a leaf with the base score, which shows nothing. With several labels each
    tree adds to the score of one of them: of the first ones, that whose leaves differ most in their predictions.
    """
    with_splits = [number for number, (start, end) in enumerate(model.tree_bounds) if end - start > 1]
    candidates = with_splits[: model.n_labels if model.leaf_kind is LeafKind.SCORES else 1]

    def count_predictions(number: int) -> int:
        nodes = model.nodes[slice(*model.tree_bounds[number])]
        return len(np.unique(model.leaf_predictions.ids[nodes["leaf"][nodes["feature"] < 0]]))

    best = max(candidates, key=count_predictions, default=0)
    return best if best < n_drawn else 0


def _name_tree(number: int, n_nodes: int, model: Model) -> str:
    what = "" if n_nodes > 1 else ": base score" if model.leaf_kind is LeafKind.SCORES else ": one leaf"
    return f"tree {number + 1} of {model.n_trees}{what}"


def _show_facts(model: Model, voting: str) -> Markup:
    """Size and shape of the model."""
    summary = summarize_model(model)
    facts: list[tuple[str, Child]] = [
        ("kind", name_kind(model.is_forest, model.n_trees)),
        ("leaves", summary.n_leaves),
        ("nodes", model.n_nodes),
        ("depth", model.max_depth),
        ("features", f"{len(model.tested_features)} tested of {model.n_features}"),
        ("labels", join(f"{model.n_labels}: ", list_names(order_labels(model.labels), MOST_LABELS))),
    ]
    if model.n_trees > 1:
        facts.append(("voting", voting))
    if summary.n_unreachable:
        facts.append(("unreachable leaves", summary.n_unreachable))
    return element(
        "dl", [element("div", element("dt", name), element("dd", fact)) for name, fact in facts], class_="facts"
    )
