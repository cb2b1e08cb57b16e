"""``import`` from ONNX: equal to what onnxruntime answers, or a refusal."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import run, write
from support.oracles import random_model, with_directions

from metasilvae.errors import ModelError
from metasilvae.formats.silva_models import format_model
from metasilvae.interop.imports import Imported, compare_with_library, import_file
from metasilvae.model import Model
from metasilvae.prediction import predict

onnx = pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra: onnx)")

STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.3, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "class_treeids": [0, 0],
    "class_nodeids": [1, 2],
    "class_ids": [0, 0],
    "class_weights": [-1.0, 1.0],
    "classlabels_strings": ["no", "yes"],
    "post_transform": "NONE",
}
THREE = {
    "class_treeids": [0, 0, 0, 0],
    "class_nodeids": [1, 1, 2, 2],
    "class_ids": [0, 1, 1, 2],
    "class_weights": [0.6, 0.4, 0.3, 0.7],
    "classlabels_strings": ["a", "b", "c"],
}


def make_onnx(is_double: bool = False, before: str | None = None, **changes: Any) -> bytes:
    attributes = {key: value for key, value in {**STUMP, **changes}.items() if value is not None}
    if is_double:
        for key in ("nodes_values", "class_weights"):
            values = attributes.pop(key)
            attributes[f"{key}_as_tensor"] = onnx.helper.make_tensor(
                key, onnx.TensorProto.DOUBLE, [len(values)], values
            )
    kind = onnx.TensorProto.DOUBLE if is_double else onnx.TensorProto.FLOAT
    labels = onnx.TensorProto.STRING if attributes.get("classlabels_strings") else onnx.TensorProto.INT64
    nodes = [onnx.helper.make_node(before, ["X"], ["Z"])] if before else []
    source = "Z" if before else "X"
    nodes.append(
        onnx.helper.make_node("TreeEnsembleClassifier", [source], ["L", "S"], domain="ai.onnx.ml", **attributes)
    )
    graph = onnx.helper.make_graph(
        nodes,
        "trees",
        [onnx.helper.make_tensor_value_info("X", kind, [None, 2])],
        [
            onnx.helper.make_tensor_value_info("L", labels, [None]),
            onnx.helper.make_tensor_value_info("S", onnx.TensorProto.FLOAT, None),
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 15), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    content: bytes = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def import_bytes(tmp_path: Path, content: bytes) -> Imported:
    return import_file(write(tmp_path, "model.onnx", content))


def predictions(model: Model, X: Any) -> list[set[str]]:
    found = predict(model, np.array(X, dtype=np.float64))
    return [{model.labels[label] for label in found.sets[number]} for number in found.ids]


@pytest.mark.parametrize("is_double", [False, True])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
@pytest.mark.parametrize("labels", [{}, THREE])
def test_every_comparison(mode: str, is_double: bool, labels: dict[str, Any], tmp_path: Path) -> None:
    content = make_onnx(is_double, nodes_modes=[mode, "LEAF", "LEAF"], **labels)
    imported = import_bytes(tmp_path, content)
    X = np.array([[0, 0.3], [0, np.float32(0.3)], [0, np.nextafter(0.3, 1)], [0, np.nextafter(0.3, 0)]])
    comparison = compare_with_library(imported, X)
    assert comparison.n_rounded == comparison.n_ties == 0
    assert comparison.n_thresholds == (4 if is_double else 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"class_weights": [0.25, 0.75]},
        {"class_weights": [0.25, 0.5]},
        {"class_weights": [0.0, 0.25]},
        {"class_weights": [-0.25, 0.25], "base_values": [0.1]},
        {"class_weights": [-0.25, 0.25], "base_values": [0.9], "post_transform": "LOGISTIC"},
        {"class_weights": [0.1, 0.3], "base_values": [0.3]},
        {"class_ids": [1, 1], "class_weights": [-2.0, 2.0]},
        {"classlabels_strings": None, "classlabels_int64s": [7, -3]},
        {**THREE, "base_values": [0.0, 0.5, 0.0], "post_transform": "SOFTMAX"},
        # Two trees, the second with gaps in its numbers; a leaf without weights.
        {
            "nodes_treeids": [0, 0, 0, 4, 4, 4],
            "nodes_nodeids": [0, 1, 2, 3, 5, 2],
            "nodes_featureids": [1, 0, 0, 0, 0, 0],
            "nodes_values": [0.3, 0, 0, 0.7, 0, 0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0, 2, 0, 0],
            "nodes_falsenodeids": [2, 0, 0, 5, 0, 0],
            "class_treeids": [0, 0, 4],
            "class_nodeids": [1, 2, 2],
            "class_ids": [0, 0, 0],
            "class_weights": [-1.0, 1.0, -1.5],
        },
    ],
)
def test_what_onnxruntime_predictions(changes: dict[str, Any], tmp_path: Path) -> None:
    imported = import_bytes(tmp_path, make_onnx(**changes))
    assert compare_with_library(imported, np.array([[0.0, 0.0], [1.0, 1.0]])).n_rounded == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_ids": [0, 1]}, "two labels with weights or base values of their own cannot be imported"),
        ({"base_values": [0.1, 0.2]}, "two labels with weights or base values of their own"),
        ({"nodes_modes": ["BRANCH_EQ", "LEAF", "LEAF"]}, "splits of mode 'BRANCH_EQ' cannot be imported"),
        ({"nodes_truenodeids": [0, 0, 0]}, "the nodes of tree 0 do not form one tree"),
        ({"nodes_truenodeids": [2, 0, 0]}, "the nodes of tree 0 do not form one tree"),
        ({"nodes_truenodeids": [9, 0, 0]}, "the nodes of tree 0 do not form one tree"),
        ({"nodes_nodeids": [0, 1, 1]}, "two nodes of a tree have the same number"),
        ({"nodes_featureids": [2, 0, 0]}, "tests feature 2, but the model has 2 features"),
        ({"nodes_featureids": [-1, 0, 0]}, "negative number"),
        ({"nodes_values": [0.3, 0.0]}, "the lists of nodes are empty or have different lengths"),
        ({"class_nodeids": [1, 9]}, "a weight belongs to a node that does not exist"),
        ({"class_ids": [5, 5]}, "a weight belongs to a label that does not exist"),
        ({"class_weights": [1.0]}, "the lists of weights have different lengths"),
        ({"class_weights": [float("nan"), 1.0]}, "score of a leaf is not a finite number"),
        ({"nodes_values": [float("nan"), 0.0, 0.0]}, "is not a number"),
        ({"classlabels_strings": ["one"]}, "has 1 labels; at least 2 are needed"),
        (
            {"before": "Neg"},
            "exactly one TreeEnsembleClassifier was expected; the graph has TreeEnsembleClassifier, Neg",
        ),
        ({**THREE, "base_values": [0.5]}, "1 base values for 3 labels"),
    ],
)
def test_what_cannot_be_imported_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        import_bytes(tmp_path, make_onnx(**changes))


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    content = make_onnx()
    for place in range(0, len(content), 7):
        path = write(tmp_path, "broken.onnx", content[:place] + b"\xff" + content[place + 1 :])
        result = run("import", path, tmp_path / "out.silva", "--from", "onnx", "--no-compare", code=None)
        assert result.exit_code in (0, 1)
        assert len(result.stderr.splitlines()) == result.exit_code, result.stderr
    told = run("import", write(tmp_path, "text.onnx", b"hello"), tmp_path / "out", "--from", "onnx", code=1).stderr
    assert "this is not an ONNX file" in told


def test_without_the_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "model.onnx", make_onnx())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told = run("import", path, tmp_path / "out.silva").stderr
    assert "pip install 'metasilvae[onnx]'" in told
    monkeypatch.setitem(sys.modules, "onnx", None)
    told = run("import", path, tmp_path / "out.silva", code=1).stderr
    assert "reading an ONNX file needs onnx, which is not installed" in told


def chain(n_splits: int, threshold: float | None = None) -> dict[str, Any]:
    """x[0] <= 0, else x[0] <= 1, else ...; or every split with the same threshold."""
    n_nodes = 2 * n_splits + 1
    is_split = [node % 2 == 0 and node < n_nodes - 1 for node in range(n_nodes)]
    leaves = [node for node in range(n_nodes) if not is_split[node]]
    return {
        "nodes_treeids": [0] * n_nodes,
        "nodes_nodeids": list(range(n_nodes)),
        "nodes_featureids": [0] * n_nodes,
        "nodes_values": [float(node // 2) if threshold is None else threshold for node in range(n_nodes)],
        "nodes_modes": ["BRANCH_LEQ" if split else "LEAF" for split in is_split],
        "nodes_truenodeids": [node + 1 if is_split[node] else 0 for node in range(n_nodes)],
        "nodes_falsenodeids": [node + 2 if is_split[node] else 0 for node in range(n_nodes)],
        "class_treeids": [0] * len(leaves),
        "class_nodeids": leaves,
        "class_ids": [0] * len(leaves),
        "class_weights": [1.0 if number % 2 else -1.0 for number in range(len(leaves))],
    }


@pytest.mark.parametrize("threshold", [None, float("inf"), float("-inf")])
def test_trees_that_are_too_deep_for_onnxruntime(threshold: float | None, tmp_path: Path) -> None:
    """It walks down by recursion, and takes the process with it; splits that the model leaves out count as well."""
    path, output = write(tmp_path, "deep.onnx", make_onnx(**chain(20_000, threshold))), tmp_path / "deep.silva"
    result = run("import", path, output)
    assert len(result.stderr.splitlines()) == 1
    assert "not compared with its library, which could crash on trees of more than 1000 levels" in result.stderr
    assert "compared  no" in result.stdout
    assert output.exists()


def test_deep_trees_that_onnxruntime_takes(tmp_path: Path) -> None:
    imported = import_bytes(tmp_path, make_onnx(**chain(1000)))
    assert imported.n_levels == imported.model.max_depth == 1000
    comparison = compare_with_library(imported)
    assert comparison is not None
    assert comparison.n_splits == comparison.n_all_splits == 1000


@pytest.mark.parametrize("n_labels", [2, 3])
def test_from_skl2onnx(n_labels: int, tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    from sklearn.datasets import make_classification
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

    X, y = make_classification(100, 5, n_informative=4, n_redundant=0, n_classes=n_labels, random_state=0)
    for estimator in (RandomForestClassifier(5, random_state=0), GradientBoostingClassifier(n_estimators=5)):
        content = skl2onnx.to_onnx(estimator.fit(X, y), X[:1].astype(np.float32)).SerializeToString()
        compare_with_library(import_bytes(tmp_path, content), X)


def make_columns(n_inputs: int, axis: int = 1, order: tuple[int, ...] = (0, 1), **changes: Any) -> bytes:
    """The stump behind a Concat of inputs of one feature each."""
    names = ["age", "body size", "c"][:n_inputs]
    nodes = [
        onnx.helper.make_node("Concat", [names[place] for place in order], ["X"], axis=axis),
        onnx.helper.make_node("TreeEnsembleClassifier", ["X"], ["L", "S"], domain="ai.onnx.ml", **{**STUMP, **changes}),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "trees",
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 1]) for name in names],
        [
            onnx.helper.make_tensor_value_info("L", onnx.TensorProto.STRING, [None]),
            onnx.helper.make_tensor_value_info("S", onnx.TensorProto.FLOAT, None),
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 15), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    content: bytes = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_one_input_per_feature_gives_names(order: tuple[int, ...], tmp_path: Path) -> None:
    imported = import_bytes(tmp_path, make_columns(2, order=order))
    assert imported.comparison is not None
    names = imported.model.description.feature_names
    assert names == tuple(("age", "body size")[place] for place in order)
    # The second feature decides.
    assert predictions(imported.model, [[9.0, 0.0], [0.0, 9.0]]) == [{"no"}, {"yes"}]
    assert import_bytes(tmp_path, make_onnx()).model.description.feature_names is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: make_columns(2, axis=0), "does not work on the input"),
        (lambda: make_columns(3), "does not work on the input"),
        (lambda: make_columns(2, order=(0, 0)), "does not work on the input"),
        (lambda: make_onnx(new_thing=[1]), "'new_thing', which this version of metasilvae does not know"),
        (lambda: make_onnx(post_transform="SQUARE"), "post_transform .*SQUARE.* is not known"),
    ],
)
def test_other_graphs_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        import_bytes(tmp_path, content())


# Missing values


@pytest.mark.parametrize("is_double", [False, True])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
@pytest.mark.parametrize("tracks_true", [0, 1])
def test_missing_values_take_the_side_of_the_attribute(
    mode: str, tracks_true: int, is_double: bool, tmp_path: Path
) -> None:
    sides = [tracks_true, 0, 0]
    content = make_onnx(is_double, nodes_modes=[mode, "LEAF", "LEAF"], nodes_missing_value_tracks_true=sides)
    imported = import_bytes(tmp_path, content)
    # Half of the random rows that were compared have missing values.
    assert imported.comparison is not None
    assert imported.model.takes_missing.all()
    found = predict(imported.model, np.array([[0.0, np.nan]]))
    assert [imported.model.labels[label] for label in found.sets[found.ids[0]]] == ["no" if tracks_true else "yes"]


def test_without_the_attribute_missing_values_are_refused(tmp_path: Path) -> None:
    assert not import_bytes(tmp_path, make_onnx()).model.has_directions
    with pytest.raises(ModelError, match="the lists of nodes are empty or have different lengths"):
        import_bytes(tmp_path, make_onnx(nodes_missing_value_tracks_true=[1, 0]))


@pytest.mark.parametrize("form", ["onnx", "onnx-double"])
@pytest.mark.parametrize("n_trees", [1, 4])
def test_exported_directions_come_back(form: str, n_trees: int, tmp_path: Path) -> None:
    rng = random.Random(n_trees)
    model = with_directions(random_model(rng, n_trees, n_features=3), rng)
    path = tmp_path / "model.onnx"
    run(
        "export", write(tmp_path, "model.silva", format_model(model)), "--to", form, "--voting", "max", "--output", path
    )
    imported = import_file(str(path))
    X = np.random.default_rng(1).normal(size=(1000, 3)).astype(np.float32).astype(np.float64)
    X[np.random.default_rng(2).random(X.shape) < 0.4] = np.nan
    ours, theirs = predict(model, X, "max"), predict(imported.model, X)
    for row in range(len(X)):
        if len(ours.sets[ours.ids[row]]) == 1:
            assert ours.sets[ours.ids[row]] == theirs.sets[theirs.ids[row]]
