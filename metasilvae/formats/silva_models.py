"""silva's text format of trees and forests: strict reader, lossless writer.

::

    model  = tree | forest
    forest = "classifier-forest" n_trees tree{n_trees}
    tree   = "classifier-decision-tree" n_features n_labels label{n_labels} node
    node   = "SPLIT" feature threshold node(left) node(right)
           | "LEAF" count{n_labels}
           | "LEAF_LOGARITHMIC" score{n_labels}

Tokens are separated by any white space. The writer puts one node on each line and writes every number as the
shortest decimal that reads back to the same float64. A line behind the last node may describe the model, see
`metasilvae.formats.model_trailer`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from metasilvae._core.parsing import model_text
from metasilvae.errors import MetasilvaeWarning, ModelError, OutputError, at_line, shorten
from metasilvae.formats.model_trailer import MARK, format_trailer, parse_trailer, read_directions
from metasilvae.formats.text import shortest_decimals
from metasilvae.io import storage
from metasilvae.io.memory import MODEL_EXPANSION, allowed_memory, describe_allowed
from metasilvae.model import NO_DESCRIPTION, NODE_DTYPE, LeafKind, Model

TREE_WORD = "classifier-decision-tree"
FOREST_WORD = "classifier-forest"
LONGEST_LABEL = 31  # bytes
LABEL_BYTES = 200  # of memory
_NODE_WORDS = ("SPLIT", "LEAF", "LEAF_LOGARITHMIC")
MAX_FEATURES = 1 << 24
MAX_NODES = 2**31 - 1
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_model(source: str) -> Model:
    """Read a model from a path, ``-`` or any other source of `storage`.

    Violations of the grammar raise a `ModelError` with path and line; tokens after the model cause a warning.
    """
    return parse_model(storage.read_source(source, MODEL_EXPANSION), storage.display_name(source))


def parse_model(text: bytes, name: str = "<memory>") -> Model:
    """Read a model from the bytes of a file; `name` is its name in messages."""
    return _Parser(text.removeprefix(_BYTE_ORDER_MARK), name).parse()


class _Parser:
    """Turns the kernel's tokens into a model, and its faults into messages."""

    def __init__(self, text: bytes, name: str) -> None:
        self.name = name
        self.scan = model_text.Scanner(text)
        n_leaves = text.count(b"LEAF")
        n_nodes = text.count(b"SPLIT") + n_leaves
        if n_nodes > MAX_NODES:
            raise ModelError(f"{name}: {n_nodes} nodes are more than the {MAX_NODES} that fit")
        self.n_leaves_at_most = n_leaves
        self.nodes = np.empty(n_nodes, dtype=NODE_DTYPE)
        self.n_trees = 1
        self.tree_line = 1
        self.head_line = 1
        self.labels: tuple[str, ...] = ()
        self.label_block = b""
        self.n_features = 0

    def parse(self) -> Model:
        word = self._token()
        is_forest = word == FOREST_WORD
        if is_forest:
            self.n_trees = self._read_size("number of trees")
        elif word != TREE_WORD:
            self._refuse(describe_first_word(word))
        roots = []
        for position in range(self.n_trees):
            if is_forest and (word := self._token()) != TREE_WORD:
                self._refuse(describe_missing_tree(word, position, self.n_trees))
            self.tree_line = self.scan.line
            if position == 0:
                self._read_first_header()
            else:
                self._read_header_again(position)
            roots.append(self.scan.n_nodes)
            fault = self.scan.read_tree(self.n_features, len(self.labels), self.nodes, self.counts, self.scores)
            if fault != model_text.NO_FAULT:
                header = Header(self.tree_line, self.head_line, self.n_features, len(self.labels))
                self._refuse(describe_node_fault(self.scan, fault, header))
        n_values = self.scan.n_leaves * len(self.labels)
        has_scores = self.scan.leaf_kind == model_text.SCORES
        values = (self.scores if has_scores else self.counts)[:n_values]
        model = Model(
            self.nodes[: self.scan.n_nodes].copy(), np.array(roots, dtype=np.int32),
            values.reshape(-1, len(self.labels)).copy(), LeafKind.SCORES if has_scores else LeafKind.COUNTS,
            self.n_features, self.labels, is_forest, self.name,
        )  # fmt: skip
        return self._read_rest(model)

    def _token(self) -> str:
        token: bytes = self.scan.next_token()
        return token.decode("utf-8", "backslashreplace")

    def _read_size(self, what: str, most: int = MAX_NODES) -> int:
        token = self._token()
        if not token:
            self._refuse(f"the file ends where the {what} was expected; it is cut short")
        if not (token.isascii() and token.isdigit()):
            self._refuse(f"found {shorten(token)}, expected the {what}, a whole number from 1 on")
        # int() refuses thousands of digits; such a number is too large in any case.
        size = int(token[:30])
        if size < 1:
            self._refuse(f"the {what} is {size}, at least 1 is needed")
        if size > most:
            self._refuse(f"the {what} is {shorten(token)}, at most {most} are supported; is the file damaged?")
        return size

    def _read_first_header(self) -> None:
        self.n_features = self._read_size("number of features", MAX_FEATURES)
        n_labels = self._read_size("number of labels")
        self.head_line = self.scan.line
        n_bytes = len(self.scan.text) - self.scan.end
        if 2 * n_labels > n_bytes:
            self._refuse(f"{n_labels} labels are announced, but only {n_bytes} bytes follow; the file is cut short")
        if n_labels * LABEL_BYTES > (allowed := allowed_memory()):
            self._refuse(f"{n_labels} labels do not fit into memory: {describe_allowed(allowed)}")
        start, first_line = 0, 0
        labels: dict[str, int] = {}
        for position in range(n_labels):
            label = self._read_label(position, n_labels)
            if position == 0:
                start, first_line = self.scan.start, self.scan.line
            if label in labels:
                self._refuse(
                    f"label {shorten(label)} occurs twice (labels {labels[label] + 1} and {position + 1} of "
                    f"{n_labels}); labels must differ, or is their number in line {self.head_line} wrong?"
                )
            labels[label] = position
        self.labels = tuple(labels)
        self.label_block = self.scan.text[start : self.scan.end]
        self.label_lines = self.scan.line - first_line
        # Each value takes at least a digit and a separator.
        n_values = min(self.n_leaves_at_most * n_labels, len(self.scan.text) // 2 + 1)
        self.counts = np.empty(n_values, dtype=np.int64)
        self.scores = self.counts.view(np.float64)

    def _read_label(self, position: int, n_labels: int) -> str:
        token: bytes = self.scan.next_token()
        if not token:
            self._refuse(f"the file ends after {position} of {n_labels} labels; it is cut short")
        try:
            label = token.decode("utf-8")
        except UnicodeDecodeError:
            found = shorten(token.decode("utf-8", "backslashreplace"))
            self._refuse(
                f"label {position + 1} of {n_labels}, {found}, is not UTF-8 text; convert the file, or is it damaged?"
            )
        problem = label_problem(label)
        if problem:
            self._refuse(f"label {position + 1} of {n_labels}, {shorten(label)}, {problem}")
        return label

    def _read_header_again(self, position: int) -> None:
        tree = f"tree {position + 1} of {self.n_trees}"
        n_features = self._read_size("number of features", MAX_FEATURES)
        if n_features != self.n_features:
            self._refuse(
                f"{tree} has {n_features} features, the first tree has {self.n_features}; "
                "the trees of a forest must agree"
            )
        n_labels = self._read_size("number of labels")
        if n_labels != len(self.labels):
            self._refuse(
                f"{tree} has {n_labels} labels, the first tree has {len(self.labels)}; the trees of a forest must agree"
            )
        self.head_line = self.scan.line
        if self.scan.skip_block(self.label_block, self.label_lines):
            return
        for number, expected in enumerate(self.labels):
            label = self._read_label(number, n_labels)
            if label != expected:
                self._refuse(
                    f"label {number + 1} of {tree} is {shorten(label)}, in the first tree it is "
                    f"{shorten(expected)}; the trees of a forest must have the same labels in the same order"
                )

    def _read_rest(self, model: Model) -> Model:
        """The model with the description of its trailer, if one follows; other text causes a warning."""
        rest = self._token()
        text, start, line = self.scan.text, self.scan.start, self.scan.line
        if rest and text.startswith(MARK.encode(), start) and text[start - 1 : start] in (b"\n", b"\r"):
            end = min(place for place in (text.find(b"\n", start), text.find(b"\r", start), len(text)) if place >= 0)
            description = parse_trailer(text[start + len(MARK) : end], model, f"{self.name}:{line}")
            model = read_directions(text[start + len(MARK) : end], replace(model, description=description))
            behind = text[end:]
            words = behind.split(None, 1)
            rest = words[0].decode("utf-8", "backslashreplace") if words else ""
            line += behind[: len(behind) - len(behind.lstrip())].count(b"\n")
        if rest:
            self._warn_of_rest(rest, line, model.is_forest)
        return model

    def _warn_of_rest(self, rest: str, line: int, is_forest: bool) -> None:
        advice = "they are ignored"
        if rest == TREE_WORD:
            advice = (
                f"the forest announces {self.n_trees} trees, the ones after them are ignored"
                if is_forest
                else f"a file of several trees begins with {FOREST_WORD}, only the first one is used"
            )
        message = f"more tokens follow the end of the model, beginning with {shorten(rest)}; {advice}"
        warnings.warn(at_line(self.name, line, message), MetasilvaeWarning, stacklevel=5)

    def _refuse(self, found: str) -> NoReturn:
        raise ModelError(at_line(self.name, self.scan.line, found))


@dataclass(frozen=True)
class Header:
    """Header of the tree that is being read, and its lines in the file."""

    tree_line: int
    size_line: int
    n_features: int
    n_labels: int


def describe_first_word(word: str) -> str:
    """The message for a file that begins with neither a tree nor a forest."""
    if not word:
        return "the file is empty, expected a model; was it written completely?"
    hint = "is this a model?"
    if word.startswith("#") or "," in word:
        hint = "is this a data file? where both are needed, MODEL comes before DATA"
    if not word.isprintable() or "\\x" in word:
        hint = "this is not a text file"
    return f"the file begins with {shorten(word)}, expected {TREE_WORD} or {FOREST_WORD}; {hint}"


def describe_missing_tree(word: str, n_read: int, n_trees: int) -> str:
    """The message for a forest that ends early or contains something else than trees."""
    if not word:
        return f"the file ends after {n_read} of {n_trees} trees; it is cut short"
    if n_read == 0:
        return f"found {shorten(word)} after the number of trees, expected {TREE_WORD}"
    return (
        f"found {shorten(word)} after the end of tree {n_read} of {n_trees}, expected {TREE_WORD}; "
        "does the last leaf have more numbers than there are labels?"
    )


def describe_node_fault(scan: model_text.Scanner, fault: int, header: Header) -> str:
    """The message for a scanner that stopped inside a tree."""
    token = scan.text[scan.start : scan.end].decode("utf-8", "backslashreplace")
    found = shorten(token)
    if fault == model_text.MISSING:
        n_missing = scan.n_open + 1
        subtrees = "1 subtree is" if n_missing == 1 else f"{n_missing} subtrees are"
        return (
            f"the file ends inside the tree of line {header.tree_line}, {subtrees} missing or incomplete; "
            "it is cut short"
        )
    if fault == model_text.BAD_WORD:
        hint = "does the leaf before it have too many numbers?"
        if scan.n_open == 0:
            hint = f"are there {header.n_labels} labels, as line {header.size_line} says?"
        return f"found {found}, expected SPLIT, LEAF or LEAF_LOGARITHMIC; {hint}"
    if fault == model_text.BAD_FEATURE:
        if not _is_whole(token):
            return f"feature {found} is not a whole number as written (digits only, counted from 0)"
        return (
            f"feature {found} is out of range: line {header.tree_line} announces {header.n_features} "
            f"features, numbered from 0 to {header.n_features - 1}"
        )
    if fault == model_text.BAD_THRESHOLD:
        return f"threshold {found} {_real_problem(token)}"
    if fault == model_text.MIXED_LEAVES:
        other = LeafKind.SCORES if token == LeafKind.COUNTS.value else LeafKind.COUNTS
        return f"{token} in a model whose first leaf is {other.value}; all leaves of a model must be of one kind"
    if fault == model_text.ZERO_LEAF:
        return "all counts of this leaf are zero, so it has no prediction; prune it or give it a count"
    kind, problem = ("score", _real_problem) if fault == model_text.BAD_SCORE else ("count", _count_problem)
    place = f"{kind} {scan.n_read + 1} of {header.n_labels}"
    if token in (*_NODE_WORDS, TREE_WORD):
        return f"found {found} where {place} of a leaf was expected; each leaf needs {header.n_labels} of them"
    return f"{place}, {found}, {problem(token)}"


def label_problem(label: str) -> str | None:
    """Why the format cannot represent a label, or None if it can."""
    try:
        n_bytes = len(label.encode("utf-8"))
    except UnicodeEncodeError:
        return "cannot be written as UTF-8"
    if n_bytes > LONGEST_LABEL:
        return f"has {n_bytes} bytes, at most {LONGEST_LABEL} are allowed; use a shorter name"
    if not label:
        return "is empty"
    if "," in label:
        return "contains a comma; use another character"
    if any(c in label for c in " \t\n\r\v\f"):
        return "contains a blank; use another character"
    if any(c < " " or c == "\x7f" for c in label):
        return "contains a control character; use letters and digits"
    return None


def _is_whole(token: str) -> bool:
    digits = token.removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _real_problem(token: str) -> str:
    try:
        number = float(token) if token.isascii() and "_" not in token else None
    except ValueError:
        number = None
    if number is None:
        return "is not a number"
    if math.isnan(number) or token.lstrip("+-")[:1].isalpha():
        return "is not a finite number"
    return "is too large for a float64 number (about 1.8e308 at most)"


def _count_problem(token: str) -> str:
    if _is_whole(token):
        return "is negative" if token.startswith("-") else "is larger than 2^53, the largest count that stays exact"
    try:
        float(token)
    except ValueError:
        return "is not a whole number"
    return (
        "is not a whole number as written; counts are written with digits only, "
        f"scores belong into {LeafKind.SCORES.value}"
    )


def format_model(model: Model, *, plain: bool = False) -> str:
    """The canonical text of a model; `read_model` gives the same model back, bit for bit.

    `plain` leaves out the trailer with the description of the model and the directions of missing values.
    """
    check_labels(model.labels, model.source)
    if len(set(model.labels)) < model.n_labels or not model.labels:
        raise ModelError(f"{model.source}: a model needs labels that differ; it cannot be written")
    lines = _format_nodes(model)
    header = f"{TREE_WORD} {model.n_features} {model.n_labels}\n{' '.join(model.labels)}"
    trailer = "" if plain else format_trailer(model)
    ending = [trailer, ""] if trailer else [""]
    if not model.is_forest:
        return "\n".join([header, *lines, *ending])
    text = [f"{FOREST_WORD} {model.n_trees}"]
    for start, end in model.tree_bounds:
        text += [header, *lines[start:end]]
    return "\n".join([*text, *ending])


def check_labels(labels: Iterable[str], source: str) -> None:
    """Refuse labels that the format cannot represent."""
    for label in labels:
        problem = label_problem(label)
        if problem:
            raise ModelError(f"{source}: label {shorten(label)} {problem}; the model cannot be written")


def _format_nodes(model: Model) -> list[str]:
    """One line for each node, in the order of the array."""
    lines = [""] * model.n_nodes
    inner = np.flatnonzero(model.nodes["feature"] >= 0)
    features = model.nodes["feature"][inner].tolist()
    thresholds = shortest_decimals(model.nodes["threshold"][inner])
    for place, feature, threshold in zip(inner.tolist(), features, thresholds, strict=True):
        lines[place] = f"SPLIT {feature} {threshold}"
    leaves = np.flatnonzero(model.nodes["feature"] < 0)
    values = model.leaf_values[model.nodes["leaf"][leaves]]
    is_exact = model.leaf_kind is LeafKind.COUNTS
    numbers = map(str, values.ravel().tolist()) if is_exact else shortest_decimals(values.ravel())
    rows = zip(*[iter(numbers)] * model.n_labels, strict=True)
    word = model.leaf_kind.value
    for place, row in zip(leaves.tolist(), rows, strict=True):
        lines[place] = f"{word} {' '.join(row)}"
    return lines


def write_model(model: Model, path: str, *, plain: bool = False) -> None:
    """Write a model and check that the file reads back as the same model.

    Standard output (``-``), pipes and devices cannot be read again; their text is checked before it is written.
    `plain` leaves out the description of the model and the directions of missing values, which stand in a line behind
    it; the model that is read back refuses missing values.
    """
    if plain:
        model = as_plain(model)
    text = format_model(model).encode()
    if not storage.is_file_output(path):
        _check_same(model, parse_model(text, path), path)
        storage.write_output(path, text)
        return
    storage.write_output(path, text)
    _check_same(model, read_model(path), path)


def as_plain(model: Model) -> Model:
    """The model without what a plain file leaves out; warns of directions that are lost."""
    if model.has_directions:
        message = (
            f"{model.source}: has directions of missing values, which a plain file leaves out; it refuses such rows"
        )
        warnings.warn(message, MetasilvaeWarning, stacklevel=3)
    return replace(model.without_directions, description=NO_DESCRIPTION)


def _check_same(model: Model, again: Model, name: str) -> None:
    if not same_model(model, again) or format_trailer(model) != format_trailer(again):
        raise OutputError(f"{name}: the model that was written reads back differently; this is a bug, please report it")


def same_model(one: Model, other: Model) -> bool:
    """Whether two models are the same, bit for bit, apart from the numbers of their leaves and from descriptions."""

    def facts(model: Model) -> tuple[object, ...]:
        nodes = model.nodes
        is_leaf = nodes["feature"] < 0
        inner = (nodes[name][~is_leaf].tobytes() for name in ("threshold", "left", "right", "leaf"))
        values = model.leaf_values[nodes["leaf"][is_leaf]].tobytes()
        structure = (model.roots.tobytes(), nodes["feature"].tobytes(), *inner, values)
        return (model.is_forest, model.n_features, model.labels, model.leaf_kind, *structure)

    return facts(one) == facts(other)
