"""Checkpoint files: a document of plain values and arrays, with a digest of all of it.

::

    metasilvae checkpoint 7
    SHA-256 of all that follows this line, in hexadecimal digits
    {"arrays": [["<i4", 12], ...], "content": {...}}
    the arrays, one after another, without gaps

The third line is JSON; ``{"array": N}`` in it stands for the N-th array. Nothing in such a file is executed, and every
value is checked where it is used. Trees are stored as tables of their tests in pre-order, one tree after another. The
children of a node follow from that order, so that no table can describe anything but trees.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.training import evolution as kernel
from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, shorten
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, NO_DIRECTION, LeafKind, Model
from metasilvae.training.samples import build_tree

T = TypeVar("T")
WORDS = b"metasilvae checkpoint "
FORMAT = 7
ARRAY_TYPES = ("<i4", "<i8", "<u8", "<f8")
_PLACE = "array"
_LARGEST_WHOLE = 2**53
DIRECTIONS = (NO_DIRECTION, MISSING_LEFT, MISSING_RIGHT)


def pack(content: dict[str, Any]) -> bytes:
    """The bytes of a file; `content` holds dicts with text keys, lists, numbers, texts, None and arrays of one axis."""
    arrays: list[np.ndarray] = []
    places: dict[int, int] = {}

    def place(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: place(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [place(each) for each in value]
        if isinstance(value, np.ndarray):
            # An array that stands in several places is written once.
            if id(value) not in places:
                places[id(value)] = len(arrays)
                arrays.append(value.astype(value.dtype.newbyteorder("<")))
                assert arrays[-1].dtype.str in ARRAY_TYPES
                assert value.ndim == 1
            return {_PLACE: places[id(value)]}
        return value

    placed = place(content)
    document = {"arrays": [[array.dtype.str, len(array)] for array in arrays], "content": placed}
    head = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    body = b"".join([head, *(array.tobytes() for array in arrays)])
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"%s%d\n%s\n%s" % (WORDS, FORMAT, digest, body)


def unpack(data: bytes) -> dict[str, Any]:
    """The content of a file."""
    if not data.startswith(WORDS):
        raise CheckpointError("is not a checkpoint of metasilvae; give the file that `train --checkpoint` wrote")
    title, _, rest = data[:100].partition(b"\n")
    number = title[len(WORDS) :]
    if number != b"%d" % FORMAT:
        found = shorten(number.decode("ascii", "backslashreplace"))
        raise CheckpointError(f"is a checkpoint in format {found}, expected {FORMAT}; use the version that wrote it")
    digest, _, _ = rest.partition(b"\n")
    body = data[len(title) + len(digest) + 2 :]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise damaged("its digest is wrong")
    head, _, tail = body.partition(b"\n")
    try:
        document = json.loads(head)
    except (ValueError, RecursionError):
        raise damaged("its head is not JSON") from None
    arrays = _read_arrays(take(document, "arrays", list), memoryview(tail))
    try:
        content: dict[str, Any] = _put_arrays(take(document, "content", dict), arrays)
    except RecursionError:
        raise damaged("its head is nested too deeply") from None
    return content


def damaged(found: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint is damaged or cut short ({found}); train from the start")


def take(document: Any, key: str, kind: type[T], least: float = 0) -> T:
    """A value of a document, of the given kind; a number is not smaller than `least`."""
    value = document.get(key) if isinstance(document, dict) else None
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= _LARGEST_WHOLE else None
    if type(value) is not kind or (isinstance(value, int | float) and not least <= value):
        raise damaged(f"{key!r} is missing or is not what it should be")
    return value


def take_array(document: Any, key: str, kind: str) -> np.ndarray:
    """An array of a document, in the byte order of this machine."""
    array = take(document, key, np.ndarray)
    if array.dtype.str != kind:
        raise damaged(f"{key!r} has another type of numbers")
    return array.astype(array.dtype.newbyteorder("="))


def _read_arrays(kinds: list[Any], data: memoryview) -> list[np.ndarray]:
    arrays = []
    start = 0
    for kind in kinds:
        if not (isinstance(kind, list) and len(kind) == 2 and kind[0] in ARRAY_TYPES and type(kind[1]) is int):
            raise damaged("an array is not described")
        n_bytes = np.dtype(kind[0]).itemsize * kind[1]
        if not 0 <= n_bytes <= len(data) - start:
            raise damaged("an array is not complete")
        arrays.append(np.frombuffer(data[start : start + n_bytes], dtype=kind[0]))
        start += n_bytes
    if start != len(data):
        raise damaged("more follows its arrays")
    return arrays


def _put_arrays(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_put_arrays(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if list(value) == [_PLACE]:
        position = take(value, _PLACE, int)
        if position >= len(arrays):
            raise damaged("an array is missing")
        return arrays[position]
    return {name: _put_arrays(each, arrays) for name, each in value.items()}


IntArray = NDArray[np.int32]
# The largest count that stays exact in all that is computed of it.
LARGEST_COUNT = 2**53


# Trees in training


def pack_individuals(trees: Sequence[Any]) -> dict[str, Any]:
    tests = [tree.tests() for tree in trees]
    return {
        **_pack_tests([feature for feature, _, _ in tests], [threshold for _, threshold, _ in tests]),
        "tie_words": np.array([len(ties) for _, _, ties in tests], dtype=np.int32),
        "ties": _join([ties for _, _, ties in tests], np.uint64),
    }


def unpack_individuals(document: Any, samples: Any, objective: Any, workspace: Any) -> list[Any]:
    """The same trees, with their predictions for the samples."""
    n_words = (samples.n_labels + 63) // 64
    tie_words = take_array(document, "tie_words", "<i4")
    ties = _split(take_array(document, "ties", "<u8"), tie_words, "ties")
    trees = []
    for (feature, threshold, left, right), tied in zip(_unpack_tests(document, samples.n_features), ties, strict=False):
        if len(tied) % n_words:
            raise damaged("tied predictions are for another number of labels")
        tree = kernel.Individual(samples).take_nodes(feature, threshold, left, right, objective, workspace, tied)
        if tree.n_nodes != len(feature):
            raise damaged("a tree does not fit the rows")
        trees.append(tree)
    if len(trees) != len(take_array(document, "sizes", "<i4")):
        raise damaged("tied predictions are missing")
    return trees


# Finished models


def pack_models(models: Sequence[Model]) -> dict[str, Any]:
    """Models of one tree each, all with class counts or all with scores in their leaves."""
    are_scores = any(model.leaf_kind is LeafKind.SCORES for model in models)
    name, kind = ("scores", np.float64) if are_scores else ("counts", np.int64)
    return {
        **_pack_tests([model.nodes["feature"] for model in models], [model.nodes["threshold"] for model in models]),
        "directions": _join([_find_directions(model) for model in models if model.has_directions], np.int32),
        "directed": np.array([model.has_directions for model in models], dtype=np.int32),
        name: _join([_leaf_values(model).ravel() for model in models], kind),
    }


def unpack_models(document: Any, dataset: Dataset) -> list[Model]:
    """The same models, for the features and labels of a data set."""
    tests = list(_unpack_tests(document, dataset.n_features))
    are_scores = "scores" in document
    values = take_array(document, "scores", "<f8") if are_scores else take_array(document, "counts", "<i8")
    n_leaves = np.array([np.count_nonzero(feature < 0) for feature, *_ in tests], dtype=np.int32)
    parts = _split(values, n_leaves * dataset.n_labels, "scores" if are_scores else "counts")
    if not are_scores:
        _check_counts(values.reshape(-1, dataset.n_labels))
    elif not np.isfinite(values).all():
        raise damaged("a score is infinite or no number")
    kind = LeafKind.SCORES if are_scores else LeafKind.COUNTS
    is_directed = take_array(document, "directed", "<i4")
    if len(is_directed) != len(tests):
        raise damaged("directions of missing values are missing")
    sizes = np.array([len(feature) for feature, *_ in tests], dtype=np.int32) * (is_directed != 0)
    directions = _split(take_array(document, "directions", "<i4"), sizes, "directions")
    if any(not np.isin(each, DIRECTIONS).all() for each in directions):
        raise damaged("a direction of missing values is none")
    return [
        build_tree(
            columns, part.reshape(-1, dataset.n_labels).copy(), dataset.n_features, dataset.labels, kind,
            pointing if len(pointing) else None,
        )
        for columns, part, pointing in zip(tests, parts, directions, strict=True)
    ]  # fmt: skip


def _find_directions(model: Model) -> np.ndarray:
    """Direction of each node; that of a leaf says nothing."""
    return np.where(model.nodes["feature"] < 0, NO_DIRECTION, model.nodes["leaf"])


def _check_counts(table: np.ndarray) -> None:
    """The counts of leaves must be such as a model file can hold."""
    if table.size and not 0 <= table.min() <= table.max() <= LARGEST_COUNT:
        raise damaged("a class count is negative or too large")
    if not table.any(axis=1).all():
        raise damaged("all counts of a leaf are zero")


def _leaf_values(model: Model) -> np.ndarray:
    assert model.n_trees == 1
    return np.asarray(model.leaf_values[model.nodes["leaf"][model.nodes["feature"] < 0]])


# Tests


def _pack_tests(features: list[np.ndarray], thresholds: list[np.ndarray]) -> dict[str, Any]:
    return {
        "sizes": np.array([len(feature) for feature in features], dtype=np.int32),
        "feature": _join(features, np.int32),
        "threshold": _join(thresholds, np.float64),
    }


def _join(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def _split(values: np.ndarray, sizes: np.ndarray, what: str) -> list[np.ndarray]:
    ends = np.cumsum(sizes, dtype=np.int64)
    if (len(sizes) and sizes.min() < 0) or len(values) != (ends[-1] if len(ends) else 0):
        raise damaged(f"the number of {what} is wrong")
    return np.split(values, ends[:-1]) if len(ends) else []


def _unpack_tests(document: Any, n_features: int) -> Iterator[tuple[IntArray, NDArray[np.float64], IntArray, IntArray]]:
    """Feature, threshold, left and right of the nodes of each tree."""
    sizes = take_array(document, "sizes", "<i4")
    features = _split(take_array(document, "feature", "<i4"), sizes, "nodes")
    thresholds = _split(take_array(document, "threshold", "<f8"), sizes, "thresholds")
    for feature, threshold in zip(features, thresholds, strict=True):
        if len(feature) == 0 or feature.min() < -1 or feature.max() >= n_features or not np.isfinite(threshold).all():
            raise damaged("a test is not one of these features")
        yield feature, threshold, *_find_children(feature)


def _find_children(feature: IntArray) -> tuple[IntArray, IntArray]:
    left, right = np.full((2, len(feature)), -1, dtype=np.int32)
    # Subtrees that wait for their parent, the next one last.
    waiting: list[int] = []
    for node in range(len(feature) - 1, -1, -1):
        if feature[node] >= 0:
            if len(waiting) < 2:
                raise damaged("a tree is not complete")
            left[node], right[node] = waiting.pop(), waiting.pop()
        waiting.append(node)
    if waiting != [0]:
        raise damaged("a tree is not complete")
    return left, right
