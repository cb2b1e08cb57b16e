"""Trains models of other programs, in an environment of their own that does not have metasilvae.

Reads one request for each line of standard input: JSON with `library`, `path` (the folder of a program that no package
index has), `data` (an .npz file with X and y), `epsilon`, `seed` and `options`. Answers each with a line of JSON:
`rounds`, `predictions` for the rows, `version` and `seconds`, or `error`. `rounds` is a list of rounds of boosting, and
each of them is a list of trees; a single tree is one round with one tree. A tree is a list of nodes, the root first. A
node is [feature, threshold, left, right] or, for a leaf, [-1, scores of the labels]; value <= threshold goes left.

Programs that are given by a path run as they are: their files are imported, never changed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

# A list of rounds, and a function that predicts the labels of rows.
Fitted = tuple[list[list[list[list[Any]]]], Callable[[Any], Any]]


# Libraries of the package index


def fit_cart(X: Any, y: Any, epsilon: float, seed: int, options: dict[str, Any]) -> Fitted:
    from sklearn.tree import DecisionTreeClassifier

    fitted = DecisionTreeClassifier(random_state=seed, **options).fit(X, y)
    tree = fitted.tree_
    nodes = [
        [-1, tree.value[node][0].tolist()]
        if tree.children_left[node] < 0
        else [int(tree.feature[node]), float(tree.threshold[node]), int(tree.children_left[node]),
              int(tree.children_right[node])]
        for node in range(tree.node_count)
    ]  # fmt: skip
    return [[nodes]], fitted.predict


def fit_groot(X: Any, y: Any, epsilon: float, seed: int, options: dict[str, Any]) -> Fitted:
    from groot.model import GrootTreeClassifier

    attack = [epsilon] * X.shape[1]
    fitted = GrootTreeClassifier(attack_model=attack, random_state=seed, **options).fit(X, y)

    def describe(node: Any) -> Any:
        if node.feature < 0:
            return [float(score) for score in node.value]
        # GROOT compares with thresholds of float32.
        return int(node.feature), float(np.float32(node.threshold)), node.left_child, node.right_child

    return [[list_nodes(fitted.root_, describe)]], fitted.predict


def list_nodes(root: Any, describe: Callable[[Any], Any]) -> list[list[Any]]:
    """The nodes of a tree of objects; `describe` gives a tuple (feature, threshold, left, right) or a leaf's scores."""
    nodes: list[list[Any]] = []

    def add(node: Any) -> int:
        place = len(nodes)
        nodes.append([])
        found = describe(node)
        if isinstance(found, tuple):
            feature, threshold, left, right = found
            nodes[place] = [feature, threshold, add(left), add(right)]
        else:
            nodes[place] = [-1, found]
        return place

    add(root)
    return nodes


# Provably Robust Boosted Decision Stumps and Trees (Andriushchenko and Hein, NeurIPS 2019)

LARGEST_WEIGHT, LEAST_SPLIT, LEAST_LEAF = 1.0, 10, 5  # as in its train.py


class NodeArray(np.ndarray):
    """Nodes that differ from an empty list, as with the numpy of 2019; since numpy 1.25 the comparison fails."""

    def __ne__(self, other: object) -> Any:
        return True if isinstance(other, list) else super().__ne__(other)


def fit_ah19(X: Any, y: Any, epsilon: float, seed: int, options: dict[str, Any]) -> Fitted:
    """Boosted trees or stumps, one against all if there are several labels.

    The program wants values from 0 to 1 as float32, so that all features are moved and scaled alike; thresholds are
    scaled back such that every row goes the same way.
    """
    # It reads its own data with tensorflow; nothing else of this module is needed.
    sys.modules["data"] = types.ModuleType("data")
    program, trees, stumps = (importlib.import_module(name) for name in ("train", "tree_ensemble", "stump_ensemble"))
    to_array = trees.Tree.__dict__["to_array_contiguous"]
    if not hasattr(to_array, "is_wrapped"):

        def to_array_contiguous(tree: Any) -> Any:
            return to_array(tree).view(NodeArray)

        to_array_contiguous.is_wrapped = True  # type: ignore[attr-defined]
        trees.Tree.to_array_contiguous = to_array_contiguous

    np.random.seed(seed)
    low = X.min()
    scale = (X.max() - low) or 1.0
    labels = np.unique(y)

    def shrink(values: Any) -> Any:
        return ((values - low) / scale).astype(np.float32)

    def restore(threshold: Any) -> float:
        return restore_threshold(float(threshold), float(low), float(scale))

    small, weak, model = shrink(X), options["weak_learner"], options["model"]
    radius, rate, n_features = epsilon / scale, options["rate"], X.shape[1]
    targets = [np.where(y == label, 1, -1) for label in (labels if len(labels) > 2 else labels[1:])]
    ensembles: list[Any] = []
    for number in range(len(targets)):
        if weak == "stump":
            ensembles.append(stumps.StumpEnsemble(weak, n_features, rate, number, -1, LARGEST_WEIGHT))
        else:
            depth = options["depth"]
            ensembles.append(
                trees.TreeEnsemble(
                    weak, n_features, rate, LEAST_SPLIT, LEAST_LEAF, number, depth, max_weight=LARGEST_WEIGHT
                )
            )
    margins = [np.zeros(len(y)) for _ in targets]
    weights = [np.ones(len(y)) for _ in targets]
    if len(labels) > 2:
        for target, weight in zip(targets, weights, strict=True):
            weight[target == 1] *= (target == -1).sum() / (target == 1).sum()
    for _ in range(options["rounds"]):
        for number, target in enumerate(targets):
            ensembles[number], weights[number], margins[number], _, _ = program.train_iter_binary_clsf(
                ensembles[number], small, target, weights[number], margins[number], model, weak, radius, number
            )

    def list_tree(tree: Any, number: int) -> list[list[Any]]:
        def scores(value: Any) -> list[float]:
            found = [0.0] * len(labels)
            found[number if len(labels) > 2 else 1] = float(value)
            return found

        def describe(node: Any) -> Any:
            if isinstance(node, list):  # the scores of a leaf
                return node
            left, right = getattr(node, "left", None), getattr(node, "right", None)
            return (
                int(node.coord),
                restore(node.b),
                scores(node.w_l) if left is None else left,
                scores(node.w_l + node.w_r) if right is None else right,
            )

        return list_nodes(tree, describe)

    def predict(values: Any) -> Any:
        found = np.array([ensemble.predict(shrink(values)) for ensemble in ensembles])
        return labels[found.argmax(axis=0) if len(labels) > 2 else (found[0] > 0).astype(int)]

    rounds = [
        [
            list_tree(tree, number)
            for number, tree in enumerate(trees_of_round)
            if tree.w_l or tree.w_r or getattr(tree, "left", None) or getattr(tree, "right", None)
        ]
        for trees_of_round in zip(*(ensemble.trees for ensemble in ensembles), strict=True)
    ]
    return rounds, predict


def restore_threshold(threshold: float, low: float, scale: float) -> float:
    """The largest value that is less than a threshold after it was scaled and rounded to float32."""
    below, above = ((threshold + change) * scale + low for change in (-1e-6, 1e-6))
    while (middle := (below + above) / 2) not in (below, above):
        if np.float32((middle - low) / scale) < np.float32(threshold):
            below = middle
        else:
            above = middle
    return below


# Fast Provably Robust Decision Trees and Boosting (Guo, Teng, Gao and Zhou, ICML 2022)


def fit_fprdt(X: Any, y: Any, epsilon: float, seed: int, options: dict[str, Any]) -> Fitted:
    """One tree, or with the option `rounds` boosted trees (PRAdaBoost); the other options are those of its main.py."""
    # Its tools for experiments need a commercial solver.
    sys.modules["util"] = types.ModuleType("util")
    sys.modules["util"].convert_numpy = float  # type: ignore[attr-defined]
    labels = np.unique(y)
    target = (y == labels[1]).astype(np.int64)
    depth = options["depth"] or 999_999

    def list_tree(tree: Any, weight: float | None) -> list[list[Any]]:
        def describe(node: Any) -> Any:
            if not node.is_leaf():
                return int(node.feature), float(node.threshold), node.left_child, node.right_child
            if weight is None:
                return [float(score) for score in node.value]
            return [0.0, float(weight * (2 * node.value[1] - 1))]

        return list_nodes(tree.root_, describe)

    if "rounds" in options:
        boosted = importlib.import_module("pradaboost").PRAdaBoost(
            options["rounds"], depth, LEAST_SPLIT, LEAST_LEAF, epsilon, random_seed=seed
        )
        boosted.fit(X, target)
        rounds = [[list_tree(tree, weight)] for tree, weight in zip(boosted.estimators_, boosted.alpha, strict=True)]
        return rounds, lambda values: labels[boosted.predict(values)]
    tree = importlib.import_module("fprdt").FPRDecisionTree(depth, LEAST_SPLIT, LEAST_LEAF, None, epsilon, seed)
    tree.fit(X, target)
    return [[list_tree(tree, None)]], lambda values: labels[tree.predict(values).astype(int)]


# Answers

# How to fit, and the package of which the version is asked, if there is one.
LIBRARIES: dict[str, tuple[Callable[..., Fitted], str | None]] = {
    "CART": (fit_cart, "scikit-learn"),
    "GROOT": (fit_groot, "groot-trees"),
    "AH19": (fit_ah19, None),
    "FPRDT": (fit_fprdt, None),
}


def find_version(package: str | None) -> str:
    from importlib.metadata import version

    return "from a path" if package is None else version(package)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    fit, package = LIBRARIES[request["library"]]
    if request["path"] not in (None, *sys.path):
        sys.path.insert(0, request["path"])
    with np.load(request["data"]) as data:
        X, y = data["X"], data["y"]
    start = time.process_time()
    try:
        rounds, predict = fit(X, y, request["epsilon"], request["seed"], request["options"])
    except Exception as error:  # whatever another program may do wrong
        return {"error": f"{type(error).__name__}: {error}"}
    seconds = time.process_time() - start
    predictions = [int(label) for label in predict(X)]
    return {"rounds": rounds, "predictions": predictions, "version": find_version(package), "seconds": seconds}


if __name__ == "__main__":
    sys.setrecursionlimit(100_000)
    warnings.simplefilter("ignore")
    os.environ["NUMBA_NUM_THREADS"] = "1"
    replies = sys.stdout
    for line in sys.stdin:
        # Programs print to standard output; the replies are there.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            reply = answer(json.loads(line))
        print(json.dumps(reply), file=replies, flush=True)
