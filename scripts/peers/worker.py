"""Trains trees of other libraries, in an environment of their own that does not have metasilvae.

Reads one request for each line of standard input: JSON with `library`, `data` (an .npz file with X and y), `epsilon`,
`seed` and `options`. Answers each with a line of JSON: `nodes`, `predictions` for the rows, `version` and `seconds`, or
`error`. A node is [feature, threshold, left, right] or, for a leaf, [-1, scores of the labels].
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def fit_cart(X: Any, y: Any, epsilon: float, seed: int, options: dict[str, Any]) -> tuple[list[list[Any]], Any]:
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
    return nodes, fitted


def fit_groot(X: Any, y: Any, epsilon: float, seed: int, options: dict[str, Any]) -> tuple[list[list[Any]], Any]:
    from groot.model import GrootTreeClassifier

    attack = [epsilon] * X.shape[1]
    fitted = GrootTreeClassifier(attack_model=attack, random_state=seed, **options).fit(X, y)
    nodes: list[list[Any]] = []

    def add(node: Any) -> int:
        place = len(nodes)
        nodes.append([])
        if node.feature < 0:
            nodes[place] = [-1, [float(score) for score in node.value]]
        else:
            # GROOT compares with thresholds of float32.
            threshold = float(np.float32(node.threshold))
            nodes[place] = [int(node.feature), threshold, add(node.left_child), add(node.right_child)]
        return place

    add(fitted.root_)
    return nodes, fitted


LIBRARIES = {"CART": (fit_cart, "sklearn"), "GROOT": (fit_groot, "groot")}


def find_version(module: str) -> str:
    from importlib.metadata import version

    return version({"sklearn": "scikit-learn", "groot": "groot-trees"}[module])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    fit, module = LIBRARIES[request["library"]]
    with np.load(request["data"]) as data:
        X, y = data["X"], data["y"]
    try:
        __import__(module)
    except ImportError as error:
        return {"error": str(error)}
    start = time.process_time()
    nodes, fitted = fit(X, y, request["epsilon"], request["seed"], request["options"])
    seconds = time.process_time() - start
    predictions = [int(label) for label in fitted.predict(X)]
    return {"nodes": nodes, "predictions": predictions, "version": find_version(module), "seconds": seconds}


if __name__ == "__main__":
    sys.setrecursionlimit(100_000)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
