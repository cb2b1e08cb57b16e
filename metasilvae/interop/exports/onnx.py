"""A model as an ONNX TreeEnsembleClassifier, with float inputs or with double inputs.

With float inputs thresholds are rounded down to float32: for every float32 row each test has the same outcome as in the
model. With double inputs only sums are rounded. Leaves hold votes (voting max), fractions or scores. ONNX rounds their
sums, so that labels with almost equal scores may change places.

With two labels onnxruntime uses one score only: the second label wins above 0, or above 1/2 if no weight is negative.
So each leaf holds the difference of its two weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError
from metasilvae.extras import load_library
from metasilvae.interop.exports.leaves import check_directions, real_weights
from metasilvae.interop.thresholds import round_down
from metasilvae.model import MISSING_LEFT, Model

EXTRA = "onnx"
IR_VERSION = 8
OPSET = 15
# Tensors of float64 numbers exist from version 3 on.
FLOAT_OPSET, DOUBLE_OPSET = 1, 3


def write_onnx(model: Model, feature_names: Sequence[str] | None, voting: str) -> bytes:
    """ONNX with float inputs."""
    return _write(model, voting, is_double=False)


def write_onnx_double(model: Model, feature_names: Sequence[str] | None, voting: str) -> bytes:
    """ONNX with double inputs."""
    return _write(model, voting, is_double=True)


def _write(model: Model, voting: str, is_double: bool) -> bytes:
    onnx = load_library("onnx", EXTRA, "writing an ONNX file")
    if model.n_labels < 2:
        raise ModelError(f"{model.source}: a classifier in ONNX needs two labels, the model has one")
    check_directions(model)
    kind = onnx.TensorProto.DOUBLE if is_double else onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(
        "TreeEnsembleClassifier",
        ["X"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        classlabels_strings=list(model.labels),
        post_transform="NONE",
        **_node_lists(model),
        **_numbers(onnx, "nodes_values", _thresholds(model, is_double), is_double),
        **_weight_lists(onnx, model, voting, is_double),
    )
    graph = onnx.helper.make_graph(
        [node],
        "metasilvae",
        [onnx.helper.make_tensor_value_info("X", kind, [None, model.n_features])],
        [
            onnx.helper.make_tensor_value_info("label", onnx.TensorProto.STRING, [None]),
            onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [None, model.n_labels]),
        ],
    )
    opsets = [
        onnx.helper.make_opsetid("", OPSET),
        onnx.helper.make_opsetid("ai.onnx.ml", DOUBLE_OPSET if is_double else FLOAT_OPSET),
    ]
    document = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="metasilvae")
    content: bytes = document.SerializeToString(deterministic=True)
    return content


def _numbers(onnx: Any, key: str, values: NDArray[np.float64], is_double: bool) -> dict[str, Any]:
    if not is_double:
        return {key: values.tolist()}
    tensor = onnx.helper.make_tensor(key, onnx.TensorProto.DOUBLE, [len(values)], values.tolist())
    return {f"{key}_as_tensor": tensor}


def _thresholds(model: Model, is_double: bool) -> NDArray[np.float64]:
    thresholds: NDArray[np.float64] = model.nodes["threshold"]
    return thresholds if is_double else round_down(thresholds).astype(np.float64)


def _node_lists(model: Model) -> dict[str, list[Any]]:
    """Nodes are numbered from 0 in each tree."""
    nodes = model.nodes
    is_leaf = nodes["feature"] < 0
    sizes = [end - start for start, end in model.tree_bounds]
    starts = np.repeat(model.roots, sizes)
    return {
        "nodes_treeids": np.repeat(np.arange(model.n_trees), sizes).tolist(),
        "nodes_nodeids": (np.arange(model.n_nodes) - starts).tolist(),
        "nodes_featureids": np.where(is_leaf, 0, nodes["feature"]).tolist(),
        "nodes_modes": ["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf.tolist()],
        "nodes_truenodeids": np.where(is_leaf, 0, nodes["left"] - starts).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, nodes["right"] - starts).tolist(),
        **_directions(model),
    }


def _directions(model: Model) -> dict[str, list[int]]:
    if not model.has_directions:
        return {}
    return {"nodes_missing_value_tracks_true": (model.nodes["leaf"] == MISSING_LEFT).astype(int).tolist()}


def _weight_lists(onnx: Any, model: Model, voting: str, is_double: bool) -> dict[str, Any]:
    weights = real_weights(model, voting)
    if model.n_labels == 2:
        weights = _keep_sign_decisive(weights[:, 1:] - weights[:, :1])
    if not is_double:
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32).astype(np.float64)
    if not np.isfinite(weights).all():
        raise ModelError(f"{model.source}: its scores are too large for ONNX")
    leaves = np.flatnonzero(model.nodes["feature"] < 0)
    trees = np.searchsorted(model.roots, leaves, side="right") - 1
    n_columns = weights.shape[1]
    values = weights[model.nodes["leaf"][leaves]].reshape(-1)
    return {
        "class_treeids": np.repeat(trees, n_columns).tolist(),
        "class_nodeids": np.repeat(leaves - model.roots[trees], n_columns).tolist(),
        "class_ids": np.tile(np.arange(n_columns), len(leaves)).tolist(),
        **_numbers(onnx, "class_weights", values, is_double),
    }


def _keep_sign_decisive(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """If no difference is negative, each that is not 0 must be above 1/2, which then decides."""
    positive = differences[differences > 0]
    if differences.min() < 0 or not positive.size:
        return differences
    # Multiplied by a power of two, which rounds nothing.
    return np.asarray(np.ldexp(differences, max(0, 1 - int(np.frexp(positive.min())[1]))))
