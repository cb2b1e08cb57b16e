"""Decision trees and forests in memory.

All nodes of all trees are in one contiguous array, each tree in pre-order, so that kernels walk memory forwards. A leaf
node holds the position of its values in a table. Predictions are label sets, because counts can tie; equal sets have
equal numbers, so that predictions are compared as integers.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.model import structure
from metasilvae.encoding import LARGEST_NUMBER, Encoding, FeatureNames, join_encodings, widen_sets
from metasilvae.errors import MetasilvaeWarning, ModelError, list_some, shorten
from metasilvae.io.fingerprints import fingerprint
from metasilvae.notebook import describe, show_facts

# The same record as Node in cython_ext/common/node.pxd.
NODE_DTYPE = np.dtype([("threshold", "=f8"), ("feature", "=i4"), ("left", "=i4"), ("right", "=i4"), ("leaf", "=i4")])
LEAF = -1
# What the field `leaf` of a split says about missing values (NaN): MissingDirection in cython_ext/common/node.pxd.
NO_DIRECTION, MISSING_LEFT, MISSING_RIGHT = -1, -2, -3
LabelSet = tuple[int, ...]


def direction_of(leaf: int) -> str | None:
    """Where a split sends missing values, from its field `leaf`: left, right, or None if it does not say."""
    return {MISSING_LEFT: "left", MISSING_RIGHT: "right"}.get(leaf)


def tell_missing(names: FeatureNames, feature: int, threshold: float, leaf: int) -> str | None:
    """The side of a split to which missing values go, None where its test is about missing values or has none."""
    is_told = threshold < LARGEST_NUMBER and names.can_be_missing(feature)
    return direction_of(leaf) if is_told else None


class LeafKind(enum.Enum):
    """Kind of the values in a leaf; the enumeration values are the words of silva's format."""

    COUNTS = "LEAF"
    SCORES = "LEAF_LOGARITHMIC"


def count_leaves(n_leaves: int) -> str:
    """A number of leaves for reports."""
    return f"{n_leaves} {'leaf' if n_leaves == 1 else 'leaves'}"


def name_kind(is_forest: bool, n_trees: int) -> str:
    """Kind of a model for reports: a tree, or a forest of n trees."""
    if not is_forest:
        return "tree"
    return f"forest of {n_trees} tree{'' if n_trees == 1 else 's'}"


class ModelFacts(Protocol):
    """What reports say about a model; a `Model` has these facts, and so have the shards of a verification."""

    @property
    def source(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def is_forest(self) -> bool: ...
    @property
    def n_trees(self) -> int: ...
    @property
    def n_leaves(self) -> int: ...
    @property
    def max_depth(self) -> int: ...


@dataclass(frozen=True)
class PredictionTable:
    """Label sets numbered from 0.

    Attributes
    ----------
    sets : tuple of tuple of int
        Distinct label sets; each is an increasing tuple of label positions.
    ids : int32 array
        Number of the set that each item (leaf or sample) predicts.
    """

    sets: tuple[LabelSet, ...]
    ids: NDArray[np.int32]

    @classmethod
    def of_best(cls, is_best: NDArray[np.bool_]) -> PredictionTable:
        """Number the label sets given as rows of a membership matrix, shape (n_items, n_labels)."""
        _, first, inverse = np.unique(np.packbits(is_best, axis=1), axis=0, return_index=True, return_inverse=True)
        sets = tuple(tuple(map(int, np.flatnonzero(is_best[item]))) for item in first)
        return cls(sets, inverse.reshape(-1).astype(np.int32))

    def memberships(self, n_labels: int) -> NDArray[np.bool_]:
        """Which labels belong to each set, shape (n_sets, n_labels)."""
        is_member = np.zeros((len(self.sets), n_labels), dtype=np.bool_)
        for number, label_set in enumerate(self.sets):
            is_member[number, list(label_set)] = True
        return is_member

    @cached_property
    def only_label(self) -> NDArray[np.int32]:
        """For each set its label if it is the only one, else -1."""
        return np.array([s[0] if len(s) == 1 else -1 for s in self.sets], dtype=np.int32)

    def are_correct(self, true_labels: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each item's set is its true label and nothing else; never for the unknown label -1."""
        return np.asarray((true_labels >= 0) & (self.only_label[self.ids] == true_labels))


@dataclass(frozen=True)
class ModelDescription:
    """What a model knows about itself beside its nodes; all of it is optional.

    Attributes
    ----------
    feature_names : tuple of str or None
        Names of the features in their order; data with names are matched to them.
    label_name : str or None
        Name of the label column of the training data.
    voting : str or None
        Voting scheme of the ensemble; None for the default of its kind of leaves.
    encoding : mapping or None
        How raw columns become features, as plain JSON values.
    provenance : mapping or None
        How the model was made, as plain JSON values.
    """

    feature_names: tuple[str, ...] | None = None
    label_name: str | None = None
    voting: str | None = None
    encoding: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = None


NO_DESCRIPTION = ModelDescription()


@dataclass(frozen=True, eq=False)
class Model:
    """A decision tree or a forest.

    Attributes
    ----------
    nodes : array of NODE_DTYPE, shape (n_nodes,)
        Trees one after another, each in pre-order. ``left`` and ``right`` are positions in this array. ``leaf`` is the
        row of a leaf in `leaf_values`, and in a split the direction of missing values: `MISSING_LEFT`, `MISSING_RIGHT`,
        or `NO_DIRECTION` in a model that refuses them.
    roots : int32 array, shape (n_trees,)
        Position of each tree's root.
    leaf_values : array, shape (n_leaves, n_labels)
        int64 class counts, or float64 scores.
    leaf_kind : LeafKind
    n_features : int
    labels : tuple of str
    is_forest : bool
        Whether the file declares a forest, possibly of one tree.
    source : str
        Name for messages and reports.
    description : ModelDescription
        Names, voting and provenance, as far as they are known.
    """

    nodes: np.ndarray
    roots: NDArray[np.int32]
    leaf_values: np.ndarray
    leaf_kind: LeafKind
    n_features: int
    labels: tuple[str, ...]
    is_forest: bool = False
    source: str = "<memory>"
    description: ModelDescription = NO_DESCRIPTION

    def __repr__(self) -> str:
        size = [name_kind(self.is_forest, self.n_trees), count_leaves(self.n_leaves), f"depth {self.max_depth}"]
        width = f"{self.n_features} features"
        return describe(f"Model {self.source}", [*size, width, f"labels {list_some(self.labels)}"])

    def _repr_html_(self) -> str:
        facts = {
            "kind": name_kind(self.is_forest, self.n_trees),
            "leaves": self.n_leaves,
            "depth": self.max_depth,
            "features": f"{len(self.tested_features)} tested of {self.n_features}",
            "labels": list_some(self.labels),
            "voting": self.description.voting if self.is_forest else None,
        }
        return show_facts(f"Model {self.source}", facts)

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @cached_property
    def encoding(self) -> Encoding | None:
        """How the columns of a table become the features of the model; None if they are the columns."""
        if self.description.encoding is None:
            return None
        try:
            encoding = Encoding.from_json(self.description.encoding)
        except ValueError as error:
            raise ModelError(f"{self.source}: the encoding of its columns cannot be used: {error}") from None
        if encoding.n_features != self.n_features:
            raise ModelError(
                f"{self.source}: the encoding makes {encoding.n_features} features, the model has {self.n_features}"
            )
        return encoding

    @property
    def names(self) -> FeatureNames:
        """Words for the features."""
        return FeatureNames.of(self.description.feature_names, self.n_features, self.encoding)

    @property
    def n_trees(self) -> int:
        return len(self.roots)

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @property
    def n_leaves(self) -> int:
        return len(self.leaf_values)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of nodes, leaves and labels, whatever the file is called."""
        return fingerprint(self.nodes, self.roots, self.leaf_values, self.labels)

    @cached_property
    def leaf_predictions(self) -> PredictionTable:
        """Prediction of each leaf: the set of labels with the largest value."""
        values = self.leaf_values
        return PredictionTable.of_best(values == values.max(axis=1, keepdims=True))

    @cached_property
    def parents(self) -> NDArray[np.int32]:
        """Parent of each node, -1 for roots."""
        parents = np.full(self.n_nodes, -1, dtype=np.int32)
        inner = np.flatnonzero(self.nodes["feature"] >= 0)
        parents[self.nodes["left"][inner]] = inner
        parents[self.nodes["right"][inner]] = inner
        return parents

    @cached_property
    def leaf_nodes(self) -> NDArray[np.int32]:
        """Node of each leaf, -1 for leaves that belong to no tree."""
        leaf_nodes = np.full(self.n_leaves, -1, dtype=np.int32)
        nodes = np.flatnonzero(self.nodes["feature"] < 0)
        leaf_nodes[self.nodes["leaf"][nodes]] = nodes
        return leaf_nodes

    @cached_property
    def depths(self) -> NDArray[np.int32]:
        """Number of splits above each node."""
        depths = np.empty(self.n_nodes, dtype=np.int32)
        structure.fill_depths(self.nodes, self.roots, depths)
        return depths

    @property
    def max_depth(self) -> int:
        return int(self.depths.max())

    @cached_property
    def tested_features(self) -> NDArray[np.int32]:
        """Features that some split tests, increasing."""
        return np.unique(self.nodes["feature"][self.nodes["feature"] >= 0])

    @cached_property
    def has_directions(self) -> bool:
        """Whether splits say where missing values go; a model without directions refuses missing values."""
        return bool((self.nodes["leaf"][self.nodes["feature"] >= 0] < NO_DIRECTION).any())

    @cached_property
    def numbered_thresholds(self) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
        """Distinct thresholds by feature and size, where those of each feature begin, and the number of each split.

        The number is that of its threshold. Numbers count from 0 for each feature; leaves have 0.
        """
        thresholds = np.empty(self.n_nodes)
        starts = np.empty(self.n_features + 1, dtype=np.int32)
        numbers = np.empty(self.n_nodes, dtype=np.int32)
        n_found = structure.number_thresholds(self.nodes, thresholds, starts, numbers)
        return thresholds[:n_found].copy(), starts, numbers

    @cached_property
    def without_directions(self) -> Model:
        """The same model for samples without missing values; it refuses them."""
        if not self.has_directions:
            return self
        nodes = self.nodes.copy()
        nodes["leaf"][nodes["feature"] >= 0] = NO_DIRECTION
        return replace(self, nodes=nodes)

    @cached_property
    def takes_missing(self) -> NDArray[np.bool_]:
        """Whether the value of each feature may be missing: the model has directions in all splits of the feature.

        A model without splits does not look at values.
        """
        takes = np.full(self.n_features, self.has_directions or len(self.tested_features) == 0)
        takes[self.nodes["feature"][(self.nodes["feature"] >= 0) & (self.nodes["leaf"] == NO_DIRECTION)]] = False
        return takes

    @cached_property
    def without_contradictions(self) -> Model:
        """The same classifier without branches that no sample can take; leaf numbers are those of this model."""
        return self._drop_contradictions(False)

    @cached_property
    def feasible(self) -> Model:
        """The form of the model that kernels search: the same classifier without branches that no sample can take.

        In such a tree the tests on a path never contradict each other, so that a box reaches a leaf if and only
        if it passes each test on the path by itself. Leaf numbers are those of this model. A split that all values
        pass on one side and missing values on the other is written as ``x <= infinity`` with missing values to the
        right.
        """
        return self._drop_contradictions(True)

    def _drop_contradictions(self, marks_missing: bool) -> Model:
        kept = np.empty_like(self.nodes)
        roots = np.empty_like(self.roots)
        n_kept, n_changed = structure.drop_contradictions(
            self.nodes, self.roots, self.takes_missing.view(np.uint8), marks_missing, kept, roots
        )
        if n_changed == 0:
            return self
        return replace(self, nodes=kept[:n_kept].copy(), roots=roots)

    @property
    def tree_bounds(self) -> list[tuple[int, int]]:
        """Positions of the first node of each tree and of the node after its last one."""
        return list(pairwise([*self.roots.tolist(), self.n_nodes]))

    def tree(self, position: int) -> Model:
        """One tree of the model, as a model of its own."""
        return replace(self.take_trees(position, position + 1), is_forest=False)

    def take_trees(self, first: int, last: int) -> Model:
        """A forest of the trees from the position `first` to the one before `last`."""
        bounds = self.tree_bounds
        start, end = bounds[first][0], bounds[last - 1][1]
        nodes = self.nodes[start:end].copy()
        inner = nodes["feature"] >= 0
        nodes["left"][inner] -= start
        nodes["right"][inner] -= start
        leaves = nodes["leaf"][~inner]
        nodes["leaf"][~inner] = np.arange(len(leaves), dtype=np.int32)
        roots = (self.roots[first:last] - start).astype(np.int32)
        return replace(self, nodes=nodes, roots=roots, leaf_values=self.leaf_values[leaves], is_forest=True)


def place_features(model: Model, names: tuple[str, ...]) -> Model:
    """The same model for samples whose features have these names, among them all of its own."""
    own = model.description.feature_names
    if own is None or own == names:
        return model
    place = {name: feature for feature, name in enumerate(names)}
    new = np.array([place[name] for name in own], dtype=np.int32)
    nodes = model.nodes.copy()
    inner = nodes["feature"] >= 0
    nodes["feature"][inner] = new[nodes["feature"][inner]]
    description = replace(model.description, feature_names=names)
    return replace(model, nodes=nodes, n_features=len(names), description=description)


def share_encoding(first: Model, second: Model) -> tuple[Model, Model]:
    """Both models with features for the sets of categories of both, if their encodings differ in sets only."""
    one, other = first.encoding, second.encoding
    if one is None or other is None or one == other or not (one.has_sets and other.has_sets):
        return first, second
    try:
        joined = join_encodings(one, other)
    except ValueError as error:
        raise ModelError(f"{first.source} and {second.source} cannot be compared: {error}") from None
    return _encode_as(first, one, joined), _encode_as(second, other, joined)


def _encode_as(model: Model, own: Encoding, joined: Encoding) -> Model:
    new = np.zeros(own.n_features, dtype=np.int32)
    for place, (column, other) in enumerate(zip(own.columns, joined.columns, strict=True)):
        numbers = {each: number for number, each in enumerate(other.sets or ())}
        start = joined.starts[place]
        places = [numbers[each] for each in widen_sets(column, other)] if column != other else range(column.width)
        new[own.starts[place] : own.starts[place] + len(places)] = start + np.array(places, dtype=np.int32)
        new[own.starts[place + 1] - 1] = joined.starts[place + 1] - 1
    nodes = model.nodes.copy()
    inner = nodes["feature"] >= 0
    nodes["feature"][inner] = new[nodes["feature"][inner]]
    description = replace(model.description, feature_names=joined.feature_names, encoding=joined.as_json())
    return replace(model, nodes=nodes, n_features=joined.n_features, description=description)


def unify_features(models: Sequence[Model]) -> list[Model]:
    """Models for the same samples: features of the first one, then further ones, if all models have names."""
    named = [model.description.feature_names for model in models]
    names = tuple(dict.fromkeys(name for own in named if own is not None for name in own))
    return list(models) if None in named else [place_features(model, names) for model in models]


def match_features(model: Model, other: Model) -> Model:
    """The model with its features in the order of another one, by name if both have names."""
    own, theirs = model.description.feature_names, other.description.feature_names
    if own is None or theirs is None:
        return model
    only = [name for name in (*theirs, *own) if (name in set(own)) != (name in set(theirs))]
    if only:
        owner = model if only[0] in own else other
        raise ModelError(
            f"{model.source}: its features are not those of {other.source}; only {owner.source} has "
            f"{list_some([shorten(name) for name in only])}; --plain files have no names and are compared by position"
        )
    return place_features(model, theirs)


def join_trees(models: Sequence[Model], source: str = "<memory>") -> Model:
    """A forest of all trees of the given models, in order.

    Features are matched by name if all models have names. The forest has what the descriptions share; a warning names
    what is dropped, apart from provenance.
    """
    first = models[0]
    for model in models[1:]:
        for what, ours, theirs in (
            ("number of features", first.n_features, model.n_features),
            ("labels", first.labels, model.labels),
            ("kind of leaves", first.leaf_kind.value, model.leaf_kind.value),
        ):
            if ours != theirs:
                raise ModelError(
                    f"{model.source}: its {what} ({_listed(theirs)}) differs from that of {first.source} "
                    f"({_listed(ours)}); a forest needs trees that were trained on the same data"
                )
    if all(model.description.feature_names is not None for model in models):
        models = [first, *(match_features(model, first) for model in models[1:])]
    node_starts = np.cumsum([0, *(m.n_nodes for m in models)])
    leaf_starts = np.cumsum([0, *(m.n_leaves for m in models)])
    nodes = np.concatenate([m.nodes for m in models])
    for model, node_start, leaf_start in zip(models, node_starts, leaf_starts, strict=False):
        part = nodes[node_start : node_start + model.n_nodes]
        inner = part["feature"] >= 0
        part["left"][inner] += node_start
        part["right"][inner] += node_start
        part["leaf"][~inner] += leaf_start
    roots = np.concatenate([m.roots + start for m, start in zip(models, node_starts, strict=False)])
    leaf_values = np.concatenate([m.leaf_values for m in models])
    roots = roots.astype(np.int32)
    return replace(
        first, nodes=nodes, roots=roots, leaf_values=leaf_values, is_forest=True, source=source,
        description=_join_descriptions(models, source),
    )  # fmt: skip


def _join_descriptions(models: Sequence[Model], source: str) -> ModelDescription:
    """What all descriptions share; a tree that names no voting goes along with any."""
    described = [model.description for model in models]
    if all(each == described[0] for each in described):
        return described[0]
    voters = [model for model in models if model.is_forest or model.description.voting is not None]
    values: dict[str, list[Any]] = {
        "feature_names": [each.feature_names for each in described],
        "label_name": [each.label_name for each in described],
        "voting": [model.description.voting for model in voters],
        "encoding": [each.encoding for each in described],
    }
    shared = {name: found[0] for name, found in values.items() if found and all(each == found[0] for each in found)}
    dropped = [
        name.replace("_", " ")
        for name, found in values.items()
        if name not in shared and any(each is not None for each in found)
    ]
    if dropped:
        message = f"{source}: the trees differ in their {' and '.join(dropped)}, which the forest does not have"
        if "voting" in dropped:
            message += "; it votes as forests without a description do, unless --voting says how"
        warnings.warn(message, MetasilvaeWarning, stacklevel=3)
    provenance = _share([each.provenance or {} for each in described]) or None
    return ModelDescription(**shared, provenance=provenance)


def _share(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all documents have, down to entries of entries."""
    found: dict[str, Any] = {}
    for key, value in documents[0].items():
        if not all(key in document for document in documents):
            continue
        values = [document[key] for document in documents]
        if all(each == value for each in values):
            found[key] = value
        elif all(isinstance(each, Mapping) for each in values):
            found[key] = _share(values)
    return found


def _listed(value: object) -> str:
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
