"""Imports of XGBoost's dumps (``dump_model``), as text or JSON, for models that are published only so.

A dump has the splits and the leaves and nothing else. The labels and the base score must be given. The rest is assumed
and reported: the objective (binary:logistic for two labels, else multi:softprob), one tree per class and round, no DART
weights, no early stopping, and features of type float. XGBoost writes numbers with 9 digits, which determine a float32
number; very old versions wrote 6, and a dump without a longer number causes a warning.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from metasilvae.errors import MetasilvaeWarning, ModelError, at_line, list_some, shorten
from metasilvae.interop.imports.builder import Nodes, build_model, place_scores, start_trees
from metasilvae.interop.imports.documents import Document, load_json
from metasilvae.interop.imports.imported import Imported, ImportOptions, NeedsOptions
from metasilvae.interop.imports.xgboost import check_base_scores
from metasilvae.interop.thresholds import fold_below
from metasilvae.model import LeafKind

FEW_DIGITS = 6
ASSUMED = (
    "a dump does not hold everything; assumed are the objective {objective}, one tree per class and round, no DART "
    "weights, no rounds after early stopping, and no features of type int"
)
_HEADING = re.compile(r"booster\[(\d+)\](:.*)?$")
_LEAF = re.compile(r"(\d+):leaf=([^,]+)(?:,cover=[^,]+)?$")
_SPLIT = re.compile(
    r"(\d+):\[(.+)<([^<\]]+)\] yes=(\d+),no=(\d+)(?:,missing=(\d+))?(?:,gain=[^,]+)?(?:,cover=[^,]+)?$", re.DOTALL
)
_KNOWN_NODE = {
    "nodeid", "depth", "split", "split_condition", "yes", "no", "missing", "gain", "cover", "children", "leaf",
}  # fmt: skip
_NUMBERED = re.compile(r"f(\d{1,8})$")


@dataclass(frozen=True)
class _DumpNode:
    """A node of a dump; `number` is a threshold or the score of a leaf, which has no feature."""

    number: str
    where: str
    feature: str | None = None
    yes: int = -1
    no: int = -1
    missing: int = -1

    @property
    def value(self) -> float:
        try:
            return float(self.number)
        except ValueError:
            raise ModelError(f"{self.where}: {shorten(self.number)} is not a number") from None


_Tree = dict[int, _DumpNode]


def read_xgboost_dump(content: bytes, name: str, options: ImportOptions) -> Imported:
    """Import a classifier from a dump; XGBoost cannot read dumps, so there is no comparison."""
    is_json = content.lstrip()[:1] in (b"[", b"{")
    trees = list(_read_json(content, name) if is_json else _read_text(content, name))
    if not trees:
        raise ModelError(f"{name}: the dump has no trees")
    _ask_for_options(options, name)
    options.refuse_counts(name)
    labels = options.labels or ()
    n_columns = 1 if len(labels) == 2 else len(labels)
    if len(trees) % n_columns:
        raise ModelError(f"{name}: {len(trees)} trees are not a multiple of {n_columns} labels; is --labels complete?")
    objective = "binary:logistic" if n_columns == 1 else "multi:softprob"
    base = check_base_scores(np.array(options.base_score), objective, n_columns, f"{name}: --base-score")
    position, names, notes = _number_features(trees, options, name)
    nodes = start_trees(base)
    nodes += [_tree_nodes(tree, position, number % n_columns, n_columns, name) for number, tree in enumerate(trees)]
    n_features = _count_features(position, names, options)
    model = build_model(nodes, LeafKind.SCORES, n_features, labels, True, name)
    _warn_of_digits(trees, name)
    origin = f"dump of XGBoost, {objective}, {len(trees)} trees"
    notes = (ASSUMED.format(objective=objective), *notes)
    return Imported.of(model, "softargmax", origin, names, lambda: None, "", notes=notes)


def _ask_for_options(options: ImportOptions, name: str) -> None:
    missing = []
    if options.base_score is None:
        missing.append("--base-score 0.5")
    if options.labels is None:
        missing.append("--labels A,B")
    if missing:
        raise NeedsOptions(
            f"{name}: this is a dump of XGBoost, which holds neither the base score nor the labels; give "
            f"--base-score (base_score of its training or its model file) and --labels",
            " ".join(missing),
        )
    if len(options.labels or ()) < 2:
        raise ModelError(f"{name}: at least 2 labels are needed, --labels has {len(options.labels or ())}")


def _number_features(
    trees: list[_Tree], options: ImportOptions, name: str
) -> tuple[dict[str, int], tuple[str, ...] | None, tuple[str, ...]]:
    """Position of each feature by its name in the dump, the names of all features, and notes."""
    used = dict.fromkeys(node.feature for tree in trees for node in tree.values() if node.feature is not None)
    numbers = {feature: _NUMBERED.match(feature) for feature in used}
    if options.feature_names is not None:
        position = {feature: number for number, feature in enumerate(options.feature_names)}
        if all(feature in position for feature in used):
            return position, options.feature_names, ()
        if not all(numbers.values()):
            unknown = [feature for feature in used if feature not in position]
            raise ModelError(f"{name}: --feature-names lacks {list_some(unknown)}, which the trees test")
    if all(numbers.values()):
        position = {feature: int(match[1]) for feature, match in numbers.items() if match}
        return position, options.feature_names, ()
    note = (
        f"the features are the {len(used)} that the trees test, in the order of the dump, so data need column names; "
        "--feature-names A,B,... gives all of them in another order"
    )
    return {feature: number for number, feature in enumerate(used)}, tuple(used), (note,)


def _count_features(position: dict[str, int], names: tuple[str, ...] | None, options: ImportOptions) -> int:
    """Number of features: that of the names, as given, or up to the last one that is tested."""
    if names is not None:
        return len(names)
    return max(position.values(), default=0) + 1 if options.n_features is None else options.n_features


def _tree_nodes(tree: _Tree, position: dict[str, int], column: int, n_columns: int, name: str) -> Nodes:
    places = {number: place for place, number in enumerate(tree)}
    n_nodes = len(tree)
    feature = np.array([-1 if node.feature is None else position[node.feature] for node in tree.values()])
    with np.errstate(over="ignore"):
        numbers = np.array([node.value for node in tree.values()]).astype(np.float32)
    is_leaf = feature < 0
    threshold = np.zeros(n_nodes)
    threshold[~is_leaf] = fold_below(numbers[~is_leaf])
    values = np.where(is_leaf, numbers, 0.0).astype(np.float64)
    children = [
        np.array([places.get(getattr(node, side), -1 - (node.feature is not None)) for node in tree.values()])
        for side in ("yes", "no")
    ]
    sides = [node for node in tree.values() if node.feature is not None]
    for node in sides:
        if node.missing not in (-1, node.yes, node.no):
            raise ModelError(f"{node.where}: missing values go to node {node.missing}, which is no child of the split")
    missing_left = np.array([node.missing == node.yes for node in tree.values()])
    is_told = all(node.missing >= 0 for node in sides)
    scores = place_scores(values, column, n_columns)
    return Nodes(feature, threshold, children[0], children[1], scores, missing_left if is_told else None)


def _read_text(content: bytes, name: str) -> Iterator[_Tree]:
    tree: _Tree = {}
    n_headings = 0
    for line, raw in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text, where = raw.strip(), f"{name}:{line}"
        heading = _HEADING.match(text)
        if heading:
            if int(heading[1]) != n_headings:
                raise ModelError(at_line(name, line, f"found {shorten(text)}, booster[{n_headings}] was expected"))
            n_headings += 1
            if tree:
                yield tree
            tree = {}
        elif text:
            number, node = _parse_line(text, where)
            if number == 0 and tree and not n_headings:
                yield tree
                tree = {}
            _add_node(tree, number, node)
    if tree:
        yield tree


def _parse_line(text: str, where: str) -> tuple[int, _DumpNode]:
    leaf = _LEAF.match(text)
    if leaf:
        return int(leaf[1]), _DumpNode(leaf[2], where)
    split = _SPLIT.match(text)
    if split:
        return int(split[1]), _DumpNode(split[3], where, split[2], int(split[4]), int(split[5]), int(split[6] or -1))
    raise ModelError(
        f"{where}: {shorten(text)} is neither a leaf nor a test of a number; splits by categories or indicators cannot "
        "be imported"
    )


def _read_json(content: bytes, name: str) -> Iterator[_Tree]:
    for number, root in enumerate(_load_list(content, name)):
        tree: _Tree = {}
        todo = [(root, f"[{number}]")]
        while todo:
            values, place = todo.pop()
            node = Document(values, name, place)
            node.expect_only(_KNOWN_NODE)
            number_of_node = node.integer("nodeid")
            if "leaf" in node:
                _add_node(tree, number_of_node, _DumpNode(_number(node, "leaf"), f"{name}: {place}"))
                continue
            split = node.take("split")
            if not isinstance(split, str | int) or isinstance(split, bool):
                node.refuse("split", split, "a name")
            # Some versions write the number of a feature instead of its name.
            feature = split if isinstance(split, str) else f"f{split}"
            children = node.list("children")
            yes, no = node.integer("yes"), node.integer("no")
            missing = node.integer("missing") if "missing" in node else -1
            added = _DumpNode(_number(node, "split_condition"), f"{name}: {place}", feature, yes, no, missing)
            _add_node(tree, number_of_node, added)
            todo += [(child, f"{place}.children[{side}]") for side, child in reversed(list(enumerate(children)))]
        yield tree


def _load_list(content: bytes, name: str) -> list[Any]:
    """The trees of a dump; a document is an object, so the list becomes one."""
    if content.lstrip()[:1] == b"{":
        return [load_json(content, name).values]
    return load_json(b'{"trees":' + content + b"}", name).list("trees")


def _number(node: Document, key: str) -> str:
    """A number, with the digits that tell how exactly it was written."""
    if key not in node:
        raise ModelError(
            f"{node.name}: {node.place} has no {key}; splits by categories or indicators cannot be imported"
        )
    found = node.take(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ModelError(
            f"{node.name}: {node.where(key)} is not a number; splits by categories and trees with several scores in a "
            "leaf cannot be imported"
        )
    try:
        return repr(float(found))
    except OverflowError:
        raise ModelError(f"{node.name}: {node.where(key)} is a number that is too large") from None


def _add_node(tree: _Tree, number: int, node: _DumpNode) -> None:
    if number in tree:
        raise ModelError(f"{node.where}: two nodes of a tree have the number {number}; is the dump damaged?")
    if not tree and number != 0:
        raise ModelError(f"{node.where}: a tree begins with node {number}, node 0 was expected")
    tree[number] = node


def _warn_of_digits(trees: list[_Tree], name: str) -> None:
    numbers = [node.number for tree in trees for node in tree.values()]
    longest = max(len(_digits(number)) for number in numbers)
    if longest <= FEW_DIGITS and len(numbers) > 1:
        warnings.warn(
            f"{name}: no number of the dump has more than {FEW_DIGITS} digits; if an old version of XGBoost rounded "
            "them, predictions beside thresholds may differ from the model's",
            MetasilvaeWarning,
            stacklevel=3,
        )


def _digits(number: str) -> str:
    return number.lower().partition("e")[0].strip("+-").replace(".", "").strip("0")
