"""Imports of ONNX files with one TreeEnsembleClassifier.

Values and thresholds are float32, or float64 in the newer form with tensors; the four comparisons become ``<=``. The
winning label is that of onnxruntime: with more than two labels the one with the largest score; with two labels there is
one score, and the second label wins above 1/2 if no weight is negative, else above 0. Two labels with weights of their
own are refused, because onnxruntime uses only one of them. A graph may have one input of all features, which has no
names for them, or one input for each feature, which gives its name, and a Concat of them. Attributes that are not
listed here are refused, because they might change predictions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, shorten
from metasilvae.extras import find_library, load_library
from metasilvae.interop.imports.builder import Nodes, build_model, count_levels, single_leaf
from metasilvae.interop.imports.imported import (
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    MOST_LEVELS,
    Imported,
    ImportOptions,
    LibraryPredictor,
    choose_labels,
    refuse_unknown,
)
from metasilvae.interop.thresholds import fold_at_most, fold_below, keep_below
from metasilvae.model import LeafKind

EXTRA = "onnx"
OPERATOR = "TreeEnsembleClassifier"
# Operators that do not change values.
HARMLESS = ("Cast", "Identity", "ZipMap")
JOIN = "Concat"
# Attributes that are not read: statistics, and the function of scores that are not compared.
KNOWN_ATTRIBUTES = {
    "base_values", "base_values_as_tensor", "class_ids", "class_nodeids", "class_treeids", "class_weights",
    "class_weights_as_tensor", "classlabels_int64s", "classlabels_strings", "nodes_falsenodeids", "nodes_featureids",
    "nodes_hitrates", "nodes_hitrates_as_tensor", "nodes_missing_value_tracks_true", "nodes_modes", "nodes_nodeids",
    "nodes_treeids", "nodes_truenodeids", "nodes_values", "nodes_values_as_tensor", "post_transform",
}  # fmt: skip
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
LEAF = "LEAF"
# Mode: (whether the test is x < t rather than x <= t, whether the true branch is the upper side).
MODES = {
    "BRANCH_LEQ": (False, False),
    "BRANCH_LT": (True, False),
    "BRANCH_GT": (False, True),
    "BRANCH_GTE": (True, True),
}


def read_onnx(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a tree ensemble; the onnx package reads the file, onnxruntime predicts for the comparison."""
    onnx = load_library("onnx", EXTRA, "reading an ONNX file")
    try:
        graph = onnx.load_model_from_string(content).graph
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise ModelError(f"{name}: this is not an ONNX file ({reason}); is it complete?") from None
    options.refuse_counts(name, f"a {OPERATOR}")
    node, entries = _find_ensemble(graph, name)
    ensemble = _Ensemble(node, onnx, name)
    is_double, widths = _describe_inputs(graph, entries, onnx, name)
    n_features = sum(widths) if widths else None
    names = entries if len(entries) > 1 and len(entries) == n_features else None
    labels = choose_labels(ensemble.labels, options.labels, name)
    if n_features is None:
        n_features = int(ensemble.integers("nodes_featureids").max(initial=0)) + 1
    trees = _make_trees(ensemble, is_double, len(labels))
    model = build_model(trees, LeafKind.SCORES, n_features, labels, True, name)
    origin = f"ONNX {OPERATOR}, {model.n_trees} trees"
    return Imported.of(
        model,
        "softargmax",
        origin,
        options.name_features(names, n_features, name),
        lambda: _load_predictor(content, ensemble.labels, is_double, entries, widths, name),
        EXTRA,
        count_levels(trees, MOST_LEVELS),
    )


def _find_ensemble(graph: Any, name: str) -> tuple[Any, list[str]]:
    """The ensemble, and the inputs of the graph in the order of its features."""
    nodes = [node for node in graph.node if node.op_type == OPERATOR]
    others = sorted({str(node.op_type) for node in graph.node if node.op_type not in (*HARMLESS, JOIN, OPERATOR)})
    if len(nodes) != 1 or others:
        found = ", ".join([*(str(node.op_type) for node in nodes), *map(str, others)][:6]) or "nothing"
        raise ModelError(f"{name}: exactly one {OPERATOR} was expected; the graph has {found}")
    passed_on = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity" and node.input}

    def find_origin(value: str) -> str:
        for _ in range(len(passed_on) + 1):
            value = passed_on.get(value, value)
        return value

    source = find_origin(nodes[0].input[0]) if nodes[0].input else ""
    joins = [node for node in graph.node if node.op_type == JOIN]
    entries = [source]
    if len(joins) == 1 and source in joins[0].output:
        axes = [int(item.i) for item in joins[0].attribute if item.name == "axis"]
        entries = [find_origin(value) for value in joins[0].input] if axes in ([1], [-1]) else []
    elif joins:
        entries = []
    if not entries or sorted(entries) != sorted(entry.name for entry in graph.input):
        raise ModelError(f"{name}: the {OPERATOR} does not work on the input of the graph itself")
    return nodes[0], entries


def _describe_inputs(graph: Any, entries: list[str], onnx: Any, name: str) -> tuple[bool, list[int]]:
    """Whether values are float64, and the number of features of each input; empty if the graph does not state it."""
    tensors = {entry.name: entry.type.tensor_type for entry in graph.input}
    kinds = {tensors[entry].elem_type for entry in entries}
    if len(kinds) != 1 or not kinds <= {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}:
        what = "input of the graph is" if len(entries) == 1 else "inputs of the graph are"
        raise ModelError(f"{name}: the {what} neither float nor double")
    sizes = [[dimension.dim_value for dimension in tensors[entry].shape.dim] for entry in entries]
    widths = [size[1] if len(size) == 2 and size[1] > 0 else 0 for size in sizes]
    if len(entries) > 1 and not all(widths):
        raise ModelError(f"{name}: the inputs of the graph do not state how many features they have")
    return kinds == {onnx.TensorProto.DOUBLE}, widths if all(widths) else []


class _Ensemble:
    """Attributes of the operator."""

    def __init__(self, node: Any, onnx: Any, name: str) -> None:
        self.name = name
        self.onnx = onnx
        try:
            self.values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        except Exception as error:
            raise ModelError(f"{name}: the attributes of the {OPERATOR} cannot be read ({error})") from None
        refuse_unknown(self.values, KNOWN_ATTRIBUTES, f"{name}: the {OPERATOR}")
        transform = self.values.get("post_transform", b"NONE")
        if transform not in [known.encode() for known in POST_TRANSFORMS]:
            raise ModelError(f"{name}: the post_transform {shorten(str(transform))} is not known")
        strings = self.texts("classlabels_strings")
        self.labels = strings or [str(number) for number in self.integers("classlabels_int64s").tolist()]
        if len(self.labels) < 2:
            raise ModelError(f"{name}: the {OPERATOR} has {len(self.labels)} labels; at least 2 are needed")

    def texts(self, key: str) -> list[str]:
        items = self.values.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, bytes) for item in items):
            raise ModelError(f"{self.name}: {key} is not a list of texts")
        return [item.decode("utf-8", "replace") for item in items]

    def integers(self, key: str) -> NDArray[np.int64]:
        items = self.values.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, int) for item in items):
            raise ModelError(f"{self.name}: {key} is not a list of whole numbers")
        return np.array(items, dtype=np.int64)

    def numbers(self, key: str) -> NDArray[np.float64]:
        """A list of float32 numbers, or a tensor of float64 numbers in the newer form."""
        found = self.values.get(key + "_as_tensor")
        try:
            items = self.values.get(key, []) if found is None else self.onnx.numpy_helper.to_array(found)
            return np.asarray(items, dtype=np.float64).reshape(-1)
        except Exception:
            raise ModelError(f"{self.name}: {key} is not a list of numbers") from None


def _make_trees(ensemble: _Ensemble, is_double: bool, n_labels: int) -> list[Nodes]:
    tree_ids, node_ids = ensemble.integers("nodes_treeids"), ensemble.integers("nodes_nodeids")
    modes = np.array(ensemble.texts("nodes_modes"), dtype=object)
    features, values = ensemble.integers("nodes_featureids"), ensemble.numbers("nodes_values")
    branches = (ensemble.integers("nodes_truenodeids"), ensemble.integers("nodes_falsenodeids"))
    n_nodes = len(tree_ids)
    if n_nodes == 0 or {len(node_ids), len(modes), len(features), len(values), *map(len, branches)} != {n_nodes}:
        raise ModelError(f"{ensemble.name}: the lists of nodes are empty or have different lengths")
    unknown = sorted(set(modes.tolist()) - {*MODES, LEAF})
    if unknown:
        raise ModelError(f"{ensemble.name}: splits of mode {shorten(unknown[0])} cannot be imported")
    if (features < 0).any():
        raise ModelError(f"{ensemble.name}: a node tests a feature with a negative number")
    is_leaf = modes == LEAF
    thresholds = _fold(values, modes, is_double)
    is_upper = np.array([mode != LEAF and MODES[mode][1] for mode in modes.tolist()])
    left, right = np.where(is_upper, branches[1], branches[0]), np.where(is_upper, branches[0], branches[1])
    missing_left = _missing_sides(ensemble, is_upper)
    places = {key: place for place, key in enumerate(zip(tree_ids.tolist(), node_ids.tolist(), strict=True))}
    if len(places) < n_nodes:
        raise ModelError(f"{ensemble.name}: two nodes of a tree have the same number")
    weights, base = _place_weights(ensemble, places, n_nodes, n_labels)
    trees = [single_leaf(base.tolist())] if base.any() else []
    members_of: dict[int, list[int]] = {}
    for place, tree in enumerate(tree_ids.tolist()):
        members_of.setdefault(tree, []).append(place)
    for tree, members in members_of.items():
        inner = [place for place in members if not is_leaf[place]]
        children = [*left[inner].tolist(), *right[inner].tolist()]
        # Splits have two children each, no child has two parents, and exactly one node has none.
        roots = set(node_ids[members].tolist()).difference(children)
        if len(roots) != 1 or len(set(children)) != len(children) or len(children) != len(members) - 1:
            raise ModelError(f"{ensemble.name}: the nodes of tree {tree} do not form one tree; is the file damaged?")
        order = _walk(places[tree, roots.pop()], tree, places, is_leaf, left, right)
        if len(order) != len(members):
            raise ModelError(f"{ensemble.name}: the nodes of tree {tree} do not form one tree; is the file damaged?")
        position = {int(node_ids[place]): number for number, place in enumerate(order.tolist())}
        sides = [
            np.array([position.get(int(child), -1) for child in side[order]], dtype=np.int64) for side in (left, right)
        ]
        feature = np.where(is_leaf[order], -1, features[order])
        of_missing = None if missing_left is None else missing_left[order]
        trees.append(Nodes(feature, thresholds[order], sides[0], sides[1], weights[order], of_missing))
    return trees


def _missing_sides(ensemble: _Ensemble, is_upper: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Whether nodes send missing values to the left child; None if the operator does not say where they go."""
    tracks_true = ensemble.integers("nodes_missing_value_tracks_true")
    if not len(tracks_true):
        return None
    if len(tracks_true) != len(is_upper):
        raise ModelError(f"{ensemble.name}: the lists of nodes are empty or have different lengths")
    return np.asarray((tracks_true != 0) != is_upper)


def _walk(
    root: int,
    tree: int,
    places: dict[tuple[int, int], int],
    is_leaf: np.ndarray,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Places of all nodes below a root, each with one parent."""
    order = []
    todo = [root]
    while todo:
        place = todo.pop()
        order.append(place)
        if not is_leaf[place]:
            children = [places.get((tree, int(side[place])), -1) for side in (right, left)]
            todo += [child for child in children if child >= 0]
    return np.array(order, dtype=np.int64)


def _fold(values: NDArray[np.float64], modes: np.ndarray, is_double: bool) -> NDArray[np.float64]:
    is_strict = np.array([mode != LEAF and MODES[mode][0] for mode in modes.tolist()])
    if is_double:
        return np.where(is_strict, keep_below(values), values)
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    return np.where(is_strict, fold_below(rounded), fold_at_most(rounded.astype(np.float64)))


def _place_weights(
    ensemble: _Ensemble, places: dict[tuple[int, int], int], n_nodes: int, n_labels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores of all labels in each node, and those that sums start from."""
    tree_ids, node_ids = ensemble.integers("class_treeids"), ensemble.integers("class_nodeids")
    columns, numbers = ensemble.integers("class_ids"), ensemble.numbers("class_weights")
    base = ensemble.numbers("base_values")
    if not len(tree_ids) == len(node_ids) == len(columns) == len(numbers):
        raise ModelError(f"{ensemble.name}: the lists of weights have different lengths")
    if columns.size and not (columns.min() >= 0 and columns.max() < n_labels):
        raise ModelError(f"{ensemble.name}: a weight belongs to a label that does not exist")
    used = set(columns.tolist())
    start = np.zeros(n_labels)
    if n_labels == 2:
        if len(used) != 1 or len(base) > 1 or (len(base) == 1 and used != {0}):
            raise ModelError(
                f"{ensemble.name}: two labels with weights or base values of their own cannot be imported: "
                "onnxruntime decides by one of them only"
            )
        columns = np.ones_like(columns)
        start[1] = base[0] if len(base) else 0.0
        start[0] = 0.5 if numbers.min(initial=0) >= 0 else 0.0
    elif len(base):
        if len(base) != n_labels:
            raise ModelError(f"{ensemble.name}: {len(base)} base values for {n_labels} labels")
        start[:] = base
    weights = np.zeros((n_nodes, n_labels))
    rows = [places.get(key, -1) for key in zip(tree_ids.tolist(), node_ids.tolist(), strict=True)]
    if -1 in rows:
        raise ModelError(f"{ensemble.name}: a weight belongs to a node that does not exist")
    np.add.at(weights, (np.array(rows, dtype=np.int64), columns), numbers)
    return weights, start


def _load_predictor(
    content: bytes, labels: list[str], is_double: bool, entries: list[str], widths: list[int], name: str
) -> LibraryPredictor | None:
    runtime = find_library("onnxruntime")
    if runtime is None:
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        raise ModelError(f"{name}: onnxruntime refuses the file: {' '.join(str(error).split())[-200:]}") from None
    position = {label: number for number, label in enumerate(labels)}
    label_output = session.get_outputs()[0].name
    ends = np.cumsum(widths).tolist()[:-1]

    def prediction(X: NDArray[np.float64]) -> NDArray[np.int64]:
        values = X if is_double else X.astype(np.float32)
        parts = [np.ascontiguousarray(part) for part in np.split(values, ends, axis=1)]
        (found,) = session.run([label_output], dict(zip(entries, parts, strict=True)))
        return np.array([position[str(label)] for label in np.asarray(found).reshape(-1).tolist()], dtype=np.int64)

    rounding = FLOAT64_ROUNDING if is_double else FLOAT32_ROUNDING
    return LibraryPredictor(f"onnxruntime {runtime.__version__}", prediction, None, rounding, not is_double)
