"""Sizes that nobody expects: they work, or they are refused in words, without recursion and in bounded memory."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from support.command import run, write

from metasilvae.analysis.simplification import simplify
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.io import memory
from metasilvae.io.memory import allowed_memory, available_memory
from metasilvae.io.storage import read_source

N_SPLITS = 100_000
HEADER = "classifier-decision-tree 2 2 a b\n"


def right_chain(predictions: tuple[str, ...]) -> str:
    """x[0] <= 0, else x[0] <= 1, else ...; the leaves answer in turn."""
    splits = (f"SPLIT 0 {k}\nLEAF {predictions[k % len(predictions)]}\n" for k in range(N_SPLITS))
    return HEADER + "".join(splits) + "LEAF 1 0\n"


def left_chain() -> str:
    leaves = ("LEAF 0 1\n" if k % 2 else "LEAF 1 0\n" for k in range(N_SPLITS + 1))
    return HEADER + "".join(f"SPLIT 0 {N_SPLITS - k}\n" for k in range(N_SPLITS)) + "".join(leaves)


@pytest.fixture(scope="module", params=["right", "left"])
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    text = right_chain(("0 1", "1 0")) if request.param == "right" else left_chain()
    return write(tmp_path_factory.mktemp("chain"), "chain.silva", text)


@pytest.mark.parametrize(
    "line",
    [
        "info CHAIN",
        "predict CHAIN ROWS",
        "verify CHAIN ROWS --epsilon 0.25",
        "verify CHAIN ROWS --epsilon 1000000",
        "verify CHAIN ROWS --radius",
        "evaluate CHAIN ROWS --epsilon 0.25",
        "explain CHAIN ROWS --epsilon 0.75",
        "diff CHAIN CHAIN",
        "simplify CHAIN -o OUT",
        "export CHAIN --to text -o OUT",
    ],
)
def test_a_chain_of_100000_splits(chain: str, line: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "a,99.5,0\nb,50000,1\na,2000000,2\n")
    run(*({"CHAIN": chain, "ROWS": rows, "OUT": tmp_path / "out"}.get(word, word) for word in line.split()))


def test_a_chain_that_says_nothing_becomes_a_leaf(tmp_path: Path) -> None:
    model = read_model(write(tmp_path, "chain.silva", right_chain(("1 0",))))
    simple = simplify(model)
    assert simple.n_nodes == 1
    assert simple.leaf_values.tolist() == [[N_SPLITS + 1, 0]]


def test_ten_thousand_classes(tmp_path: Path) -> None:
    labels = [f"c{number}" for number in range(10_000)]
    leaves = [" ".join("1" if position == number else "0" for position in range(10_000)) for number in (3, 9_999)]
    tie = " ".join(["1"] * 10_000)
    text = f"classifier-decision-tree 1 10000\n{' '.join(labels)}\nSPLIT 0 0.5\nLEAF {leaves[0]}\nLEAF {leaves[1]}\n"
    model = write(tmp_path, "model.silva", text)
    rows = write(tmp_path, "rows.csv", "".join(f"{label},{number % 3}\n" for number, label in enumerate(labels)))
    assert set(run("predict", model, rows).stdout.split()) == {"c3", "c9999"}
    assert "accuracy           0.01 %" in run("verify", model, rows, "--epsilon", "0.1", "--format", "text").stdout
    for table_format in ("text", "markdown"):
        shown = run("evaluate", model, rows, "--confusion", "--format", table_format).stdout
        assert "the 100 most frequent of 9999 kinds of mistakes" in shown
        assert len(shown.splitlines()) < 120
    undecided = write(tmp_path, "tie.silva", f"classifier-decision-tree 1 10000\n{' '.join(labels)}\nLEAF {tie}\n")
    assert len(run("evaluate", undecided, rows, "--confusion").stdout) < 12_000
    run("train", rows, tmp_path / "tree.silva", "--epsilon", "0.1", "--time-limit", "0.01")
    assert read_model(str(tmp_path / "tree.silva")).n_labels == 10_000


def test_a_million_features(tmp_path: Path) -> None:
    n_features = 1_000_000
    entries = " ".join(f"{index}:1" for index in range(1, n_features + 1))
    sparse = write(tmp_path, "wide.svm", f"a {entries}\nb 1:2\n")
    dataset = read_dataset(sparse)
    assert dataset.X.shape == (2, n_features)
    assert dataset.X.sum() == n_features + 2
    dense = write(tmp_path, "wide.csv", f"a{',1' * n_features}\nb{',2' * n_features}\n")
    assert np.array_equal(read_dataset(dense).X, [[1.0] * n_features, [2.0] * n_features])


def test_attacks_on_tens_of_thousands_of_named_columns(tmp_path: Path) -> None:
    """In time linear in the columns; if something looks at all of them for each, this takes minutes."""
    n_features = 15_000
    names = ",".join(f"name {number}" for number in range(n_features))
    rows = "".join(f"{label}{value * n_features}\n" for label, value in (("a", ",0"), ("b", ",0.5"), ("a", ",2")))
    data = write(tmp_path, "wide.csv", f"label,{names}\n{rows}")
    attack = str(tmp_path / "attack.toml")
    run("attack", "template", data, "-o", attack)
    shown = run("attack", "check", attack, data).stdout.splitlines()
    assert shown[n_features - 1 :] == [
        "name 14999  up or down by at most 0.1",
        "",
        f"all 3 rows of {data} satisfy these constraints",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "classifier-decision-tree 2 2147483647\na b\nLEAF 1 0\n",
        "classifier-decision-tree 99999999999 2\na b\nLEAF 1 0\n",
        "classifier-forest 2147483647\nclassifier-decision-tree 2 2\na b\nLEAF 1 0\n",
        f"classifier-decision-tree {'9' * 5000} 2\na b\nLEAF 1 0\n",
    ],
)
def test_absurd_headers_of_models(tmp_path: Path, text: str) -> None:
    result = run("info", write(tmp_path, "model.silva", text), code=1)
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 300


def test_a_small_file_that_asks_for_all_memory(tmp_path: Path) -> None:
    result = run("data", "check", write(tmp_path, "data.svm", "a 2000000000:1\n" * 1000), code=1)
    assert "1000 rows of 2000000000 features need 14901.2 GiB of memory, " in result.stdout
    assert "GiB are allowed (half of the free memory); METASILVAE_MEMORY=SIZE changes that" in result.stdout


def test_what_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "model.silva.gz", gzip.compress(b" " * (3 << 20)))
    assert len(read_source(path)) == 3 << 20
    monkeypatch.setenv("METASILVAE_MEMORY", "2M")
    with pytest.raises(DataError, match=r"holds more than fits into memory: 2.0 MiB are allowed"):
        read_source(path)


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("1", 1), ("3k", 3 << 10), ("500M", 500 << 20), ("8G", 8 << 30), ("1TiB", 1 << 40)]
)
def test_sizes(text: str, n_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASILVAE_MEMORY", text)
    assert allowed_memory() == n_bytes


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "8X"])
def test_sizes_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASILVAE_MEMORY", text)
    with pytest.raises(RequestError, match="a size such as 500M or 8G was expected"):
        allowed_memory()


def test_the_smallest_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METASILVAE_MEMORY", raising=False)
    monkeypatch.setattr(memory, "_free_memory", lambda: 1000)
    monkeypatch.setattr(memory, "_process_limits", lambda: iter([900, 2000]))
    monkeypatch.setattr(memory, "_control_group_limits", lambda: iter([800]))
    assert available_memory() == 800
    assert allowed_memory() == 400
    monkeypatch.undo()
    assert available_memory() > 0
