"""What to say about a model file that breaks the grammar of silva's text format."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metasilvae._core.parsing import model_text
from metasilvae.errors import shorten
from metasilvae.model import LeafKind

TREE_WORD = "classifier-decision-tree"
FOREST_WORD = "classifier-forest"
LONGEST_LABEL = 31  # bytes
_NODE_WORDS = ("SPLIT", "LEAF", "LEAF_LOGARITHMIC")


@dataclass(frozen=True)
class Header:
    """What the file said about the tree that is being read, and in which lines."""

    tree_line: int
    size_line: int
    n_features: int
    n_labels: int


def describe_first_word(word: str) -> str:
    """The file begins with neither a tree nor a forest."""
    if not word:
        return "the file is empty, expected a model; was it written completely?"
    hint = "is this a model?"
    if word.startswith("#") or "," in word:
        hint = "is this a data file? where both are needed, MODEL comes before DATA"
    if not word.isprintable() or "\\x" in word:
        hint = "this is not a text file"
    return f"the file begins with {shorten(word)}, expected {TREE_WORD} or {FOREST_WORD}; {hint}"


def describe_missing_tree(word: str, n_read: int, n_trees: int) -> str:
    """A forest ends early, or something else stands where a tree should begin."""
    if not word:
        return f"the file ends after {n_read} of {n_trees} trees; it is cut short"
    if n_read == 0:
        return f"found {shorten(word)} after the number of trees, expected {TREE_WORD}"
    return (
        f"found {shorten(word)} after the end of tree {n_read} of {n_trees}, expected {TREE_WORD}; "
        "does the last leaf have more numbers than there are labels?"
    )


def describe_node_fault(scan: model_text.Scanner, fault: int, header: Header) -> str:
    """The scanner stopped inside a tree."""
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
        return "all counts of this leaf are zero, so that it has no answer; prune it or give it a count"
    kind, problem = ("score", _real_problem) if fault == model_text.BAD_SCORE else ("count", _count_problem)
    place = f"{kind} {scan.n_read + 1} of {header.n_labels}"
    if token in (*_NODE_WORDS, TREE_WORD):
        return f"found {found} where {place} of a leaf was expected; each leaf needs {header.n_labels} of them"
    return f"{place}, {found}, {problem(token)}"


def label_problem(label: str) -> str | None:
    """Why the format cannot hold a label, or None if it can."""
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
