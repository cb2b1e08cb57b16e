"""Broken model files: each is refused with its place, in one line, with exit code 1."""

import gzip

import pytest
from click.testing import CliRunner

from metasilvae.cli import main

TREE = "classifier-decision-tree 3 2\n"
FOREST = "classifier-forest 2\n"
LEAVES = "LEAF 1 0\nLEAF 0 1\n"
TRUNCATED_GZIP = gzip.compress((TREE + "a b\nSPLIT 0 1\n" + LEAVES).encode())[:-12]

# Name: content, line (None: the message has none), what the message says.
BROKEN: dict[str, tuple[str | bytes, int | None, str]] = {
    "empty": ("", 1, "the file is empty, expected a model"),
    "blank lines only": ("\n \n\t\n", 1, "the file is empty"),
    "a data file": ("# 2 2\na,1,2\n", 1, "is this a data file?"),
    "a data file without header": ("a,1,2\n", 1, "begins with 'a,1,2', expected classifier-decision-tree or"),
    "another first word": ("regression-tree 3 2\n", 1, "begins with 'regression-tree'"),
    "wrong case": ("Classifier-Decision-Tree 3 2\na b\nLEAF 1 0", 1, "begins with 'Classifier-Decision-Tree'"),
    "binary garbage": (b"\x00\x01\x02\xff\xfe" * 30, 1, "this is not a text file"),
    "an image": (b"\x89PNG\r\n\x1a\n\x00\x00", 1, "this is not a text file"),
    "UTF-16": ("classifier-decision-tree".encode("utf-16"), 1, "this is not a text file"),
    "a very long word": ("x" * 100_000, 1, "begins with 'xxx"),
    "truncated gzip": (TRUNCATED_GZIP, None, "the compressed file is damaged or cut short"),
    "no sizes": ("classifier-decision-tree", 1, "ends where the number of features was expected"),
    "no number of labels": ("classifier-decision-tree 3", 1, "ends where the number of labels was expected"),
    "features not a number": (
        "classifier-decision-tree x 2\na b\nLEAF 1 0",
        1,
        "found 'x', expected the number of features",
    ),
    "negative features": (
        "classifier-decision-tree -3 2\na b\nLEAF 1 0",
        1,
        "found '-3', expected the number of features",
    ),
    "fractional features": (
        "classifier-decision-tree 3.0 2\na b\nLEAF 1 0",
        1,
        "found '3.0', expected the number of features",
    ),
    "no features": ("classifier-decision-tree 0 2\na b\nLEAF 1 0", 1, "the number of features is 0, at least 1"),
    "absurd features": (f"classifier-decision-tree {10**12} 2\na b\nLEAF 1 0", 1, "at most 16777216 are supported"),
    "digits without end": (
        f"classifier-decision-tree {'9' * 5000} 2\na b\nLEAF 1 0",
        1,
        "at most 16777216 are supported",
    ),
    "foreign digits": ("classifier-decision-tree ٣ 2\na b\nLEAF 1 0", 1, "expected the number of features"),
    "no labels": ("classifier-decision-tree 3 0\nLEAF\n", 1, "the number of labels is 0, at least 1"),
    "absurd labels": (
        f"classifier-decision-tree 3 {10**9}\na b\nLEAF 1 0",
        1,
        "1000000000 labels are announced, but only 13",
    ),
    "more absurd labels": (
        f"classifier-decision-tree 3 {10**12}\na b\nLEAF 1 0",
        1,
        "at most 2147483647 are supported",
    ),
    "too few labels": (
        TREE + "a LEAF\n1 0\n",
        3,
        "found '1', expected SPLIT, LEAF or LEAF_LOGARITHMIC; are there 2 labels",
    ),
    "too many labels": (
        TREE + "a b c\nLEAF 1 0\n",
        2,
        "found 'c', expected SPLIT, LEAF or LEAF_LOGARITHMIC; are there 2",
    ),
    "labels cut short": ("classifier-decision-tree 3 3\nabcd   \n", 2, "the file ends after 1 of 3 labels"),
    "label twice": (TREE + "a a\nLEAF 1 0\n", 2, "label 'a' occurs twice (labels 1 and 2 of 2)"),
    "label too long": (TREE + "a " + "b" * 32 + "\nLEAF 1 0\n", 2, "has 32 bytes, at most 31 are allowed"),
    "label with comma": (TREE + "a b,c\nLEAF 1 0\n", 2, "label 2 of 2, 'b,c', contains a comma"),
    "label not UTF-8": (TREE.encode() + b"a \xe9t\xe9\nLEAF 1 0\n", 2, "is not UTF-8 text"),
    "label with NUL": (TREE + "a b\0\nLEAF 1 0\n", 2, "contains a control character"),
    "unknown node word": (TREE + "a b\nSPLIT 0 1\nLEAF 1 0\nLEAFS 0 1\n", 5, "found 'LEAFS', expected SPLIT, LEAF or"),
    "node word in wrong case": (TREE + "a b\nleaf 1 0\n", 3, "found 'leaf', expected SPLIT, LEAF or LEAF_LOGARITHMIC"),
    "no node": (TREE + "a b\n", 2, "the file ends inside the tree of line 1, 1 subtree is missing"),
    "truncated tree": (
        TREE + "a b\nSPLIT 0 1\nSPLIT 0 2\nLEAF 1 0\n",
        5,
        "inside the tree of line 1, 2 subtrees are missing",
    ),
    "truncated split": (TREE + "a b\nSPLIT 0", 3, "the file ends inside the tree of line 1"),
    "truncated split word": (TREE + "a b\nSPLIT", 3, "the file ends inside the tree of line 1"),
    "truncated leaf": (TREE + "a b\nLEAF 1", 3, "the file ends inside the tree of line 1"),
    "feature too large": (
        TREE + "a b\nSPLIT 3 1\n" + LEAVES,
        3,
        "feature '3' is out of range: line 1 announces 3 features",
    ),
    "huge feature": (TREE + f"a b\nSPLIT {2**32} 1\n" + LEAVES, 3, "feature '4294967296' is out of range"),
    "negative feature": (TREE + "a b\nSPLIT -1 1\n" + LEAVES, 3, "feature '-1' is out of range"),
    "fractional feature": (TREE + "a b\nSPLIT 1.0 1\n" + LEAVES, 3, "feature '1.0' is not a whole number as written"),
    "feature by name": (TREE + "a b\nSPLIT width 1\n" + LEAVES, 3, "feature 'width' is not a whole number"),
    "threshold not a number": (TREE + "a b\nSPLIT 0 x\n" + LEAVES, 3, "threshold 'x' is not a number"),
    "threshold with comma": (TREE + "a b\nSPLIT 0 1,5\n" + LEAVES, 3, "threshold '1,5' is not a number"),
    "threshold with underscore": (TREE + "a b\nSPLIT 0 1_0\n" + LEAVES, 3, "threshold '1_0' is not a number"),
    "hexadecimal threshold": (TREE + "a b\nSPLIT 0 0x1p3\n" + LEAVES, 3, "threshold '0x1p3' is not a number"),
    "threshold nan": (TREE + "a b\nSPLIT 0 nan\n" + LEAVES, 3, "threshold 'nan' is not a finite number"),
    "threshold inf": (TREE + "a b\nSPLIT 0 -inf\n" + LEAVES, 3, "threshold '-inf' is not a finite number"),
    "threshold overflows": (TREE + "a b\nSPLIT 0 1e309\n" + LEAVES, 3, "threshold '1e309' is too large for a float64"),
    "threshold missing": (TREE + "a b\nSPLIT 0\n" + LEAVES, 4, "threshold 'LEAF' is not a number"),
    "negative count": (TREE + "a b\nLEAF -1 2\n", 3, "count 1 of 2, '-1', is negative"),
    "fractional count": (TREE + "a b\nLEAF 1 2.5\n", 3, "count 2 of 2, '2.5', is not a whole number as written"),
    "whole count with point": (TREE + "a b\nLEAF 3.0 1\n", 3, "count 1 of 2, '3.0', is not a whole number as written"),
    "count with sign": (TREE + "a b\nLEAF +3 1\n", 3, "count 1 of 2, '+3', is not a whole number as written"),
    "count not a number": (TREE + "a b\nLEAF x 1\n", 3, "count 1 of 2, 'x', is not a whole number"),
    "huge count": (TREE + f"a b\nLEAF {2**53 + 1} 1\n", 3, "is larger than 2^53"),
    "count without end": (TREE + f"a b\nLEAF {'9' * 9000} 1\n", 3, "is larger than 2^53"),
    "too few counts": (
        TREE + "a b\nSPLIT 0 1\nLEAF 1\nLEAF 0 1\n",
        5,
        "found 'LEAF' where count 2 of 2 of a leaf was expected",
    ),
    "too many counts": (TREE + "a b\nSPLIT 0 1\nLEAF 1 2 3\nLEAF 0 1\n", 4, "found '3', expected SPLIT, LEAF or"),
    "all-zero leaf": (TREE + "a b\nSPLIT 0 1\nLEAF 0 0\nLEAF 0 1\n", 4, "all counts of this leaf are zero"),
    "score not a number": (TREE + "a b\nLEAF_LOGARITHMIC 0.5 x\n", 3, "score 2 of 2, 'x', is not a number"),
    "score nan": (TREE + "a b\nLEAF_LOGARITHMIC NaN 1\n", 3, "score 1 of 2, 'NaN', is not a finite number"),
    "score overflows": (TREE + "a b\nLEAF_LOGARITHMIC 1 -1e999\n", 3, "score 2 of 2, '-1e999', is too large"),
    "mixed leaves": (
        TREE + "a b\nSPLIT 0 1\nLEAF 1 0\nLEAF_LOGARITHMIC 1 0\n",
        5,
        "LEAF_LOGARITHMIC in a model whose first leaf is LEAF",
    ),
    "mixed trees": (
        FOREST + TREE + "a b\nLEAF_LOGARITHMIC 1 0\n" + TREE + "a b\nLEAF 1 0\n",
        7,
        "LEAF in a model whose first leaf is LEAF_LOGARITHMIC",
    ),
    "forest without number": ("classifier-forest\n" + TREE + "a b\nLEAF 1 0", 2, "expected the number of trees"),
    "forest of nothing": ("classifier-forest 0\n", 1, "the number of trees is 0, at least 1"),
    "absurd number of trees": (f"classifier-forest {10**12}\n", 1, "the number of trees is '1000000000000', at most"),
    "large number of trees": (
        "classifier-forest 99999999\n" + TREE + "a b\nLEAF 1 0\n",
        4,
        "ends after 1 of 99999999 trees",
    ),
    "forest without trees": (FOREST, 1, "the file ends after 0 of 2 trees"),
    "forest with one tree too few": (FOREST + TREE + "a b\nLEAF 1 0\n", 4, "the file ends after 1 of 2 trees"),
    "forest in a forest": (FOREST + FOREST, 2, "found 'classifier-forest' after the number of trees"),
    "forest with a damaged tree": (FOREST + TREE + "a b\nLEAF 1 0 7\n", 4, "found '7' after the end of tree 1 of 2"),
    "trees of different width": (
        FOREST + TREE + "a b\nLEAF 1 0\nclassifier-decision-tree 4 2\na b\nLEAF 1 0\n",
        5,
        "tree 2 of 2 has 4 features, the first tree has 3",
    ),
    "trees with more labels": (
        FOREST + TREE + "a b\nLEAF 1 0\nclassifier-decision-tree 3 3\na b c\nLEAF 1 0 0\n",
        5,
        "tree 2 of 2 has 3 labels, the first tree has 2",
    ),
    "trees with other labels": (
        FOREST + TREE + "a b\nLEAF 1 0\n" + TREE + "a c\nLEAF 1 0\n",
        6,
        "label 2 of tree 2 of 2 is 'c', in the first tree it is 'b'",
    ),
    "trees with labels in another order": (
        FOREST + TREE + "a b\nLEAF 1 0\n" + TREE + "b a\nLEAF 1 0\n",
        6,
        "must have the same labels in the same order",
    ),
    "second tree truncated": (
        FOREST + TREE + "a b\nLEAF 1 0\n" + TREE + "a b\nSPLIT 0 1\n",
        7,
        "the file ends inside the tree of line 5, 2 subtrees are",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_model_is_refused_with_its_place(name, tmp_path):
    content, line, message = BROKEN[name]
    path = tmp_path / "broken.silva"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    result = CliRunner().invoke(main, ["info", str(path)])
    place = f"{path}: " if line is None else f"{path}:{line}: "
    assert result.stderr.startswith(f"error: {place}"), result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < len(str(path)) + 400
    assert result.stdout == ""
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)


def test_messages_about_standard_input_name_it():
    result = CliRunner().invoke(main, ["info", "-"], input=TREE + "a b\nLEAF 0 0\n")
    assert result.stderr.startswith("error: <stdin>:3: all counts")
    assert result.exit_code == 1


def test_missing_file_and_folder(tmp_path):
    for path, message in ((tmp_path / "none.silva", "no such file"), (tmp_path, "is a folder")):
        result = CliRunner().invoke(main, ["info", str(path)])
        assert result.stderr.startswith(f"error: {path}: {message}")
        assert result.exit_code == 1


def test_tokens_after_the_model_are_a_warning(tmp_path):
    path = tmp_path / "m.silva"
    path.write_text(TREE + "a b\nLEAF 1 0\nLEAF 0 1\n")
    result = CliRunner().invoke(main, ["info", str(path)])
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"warning: {path}:4: more tokens follow the end of the model, beginning with 'LEAF'; they are ignored"
    ]
