"""The evaluate command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.command import HARD_FOREST, TREE, run, write


def records(*arguments: object) -> list[dict]:
    return json.loads(run("evaluate", *arguments, "--format", "json").stdout)["evaluations"]


def test_accuracy_alone(tree: str, rows: str) -> None:
    assert records(tree, rows) == [
        {"model": tree, "accuracy": 2 / 7, "trees": 1, "leaves": 4, "depth": 2, "acc/leaves": 2 / 28}
    ]


def test_one_line_for_each_model_and_radius(tree: str, rows: str, tmp_path: Path) -> None:
    stump = write(tmp_path, "stump.silva", "classifier-decision-tree 2 3 a bb c LEAF 1 0 0")
    found = records(tree, stump, rows, "--epsilon", 0, "--epsilon", 0.1)
    assert [(r["model"], r["perturbation"]) for r in found] == [
        (tree, "l_inf 0"), (tree, "l_inf 0.1"), (stump, "l_inf 0"), (stump, "l_inf 0.1"),
    ]  # fmt: skip
    assert found[1] == {
        "model": tree, "perturbation": "l_inf 0.1", "accuracy": 2 / 7, "stability": 2 / 7, "robust_accuracy": 1 / 7,
        "robust": 1, "fragile": 1, "vulnerable": 1, "broken": 4, "no_info": 0,
        "trees": 1, "leaves": 4, "depth": 2, "acc/leaves": 2 / 28, "st/leaves": 2 / 28,
    }  # fmt: skip
    assert found[3]["stability"] == found[3]["st/leaves"] == 1.0
    assert found[3]["accuracy"] == 3 / 7


def test_text_table(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(tree).parent)
    assert run("evaluate", "tree.silva", "rows.csv", "--epsilon", "0.1").stdout == (
        "model       perturbation  accuracy  stability  robust accuracy  robust  fragile  vulnerable  broken  no info"
        "  trees  leaves  depth  acc/leaves  st/leaves\n"
        "tree.silva  l_inf 0.1       0.2857     0.2857           0.1429       1        1           1       4        0"
        "      1       4      2     0.07143    0.07143\n"
    )


def test_markdown(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(tree).parent)
    assert run("evaluate", "tree.silva", "rows.csv", "--format", "markdown").stdout == (
        "| model | accuracy | trees | leaves | depth | acc/leaves |\n"
        "|---|---:|---:|---:|---:|---:|\n"
        "| tree.silva | 0.2857 | 1 | 4 | 2 | 0.07143 |\n"
    )


def test_csv_keeps_all_digits(tree: str, rows: str) -> None:
    (record,) = csv.DictReader(io.StringIO(run("evaluate", tree, rows, "--format", "csv", "--epsilon", "0.1").stdout))
    assert float(record["accuracy"]) == 2 / 7
    assert record["broken"] == "4"


def test_confusion(tree: str, rows: str) -> None:
    text = run("evaluate", tree, rows, "--confusion").stdout
    table = text[text.index("true label ") :].splitlines()
    assert [line.split() for line in table] == [
        ["true", "label", "a", "bb", "c", "a,bb", "a,bb,c", "bb,c"],
        ["a", "2", "0", "0", "0", "1", "0"],
        ["bb", "0", "0", "0", "1", "0", "1"],
        ["c", "1", "0", "0", "0", "0", "1"],
    ]
    document = json.loads(run("evaluate", tree, rows, "--confusion", "--format", "json").stdout)
    (confusion,) = document["confusions"]
    assert confusion["model"] == tree
    assert sum(cell["rows"] for cell in confusion["counts"]) == 7
    assert {"label": "c", "prediction": "bb,c", "rows": 1} in confusion["counts"]


def test_a_forest_is_verified_within_limits(forest: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "a,0.1,0\nb,0.9,0\n")
    (record,) = records(forest, rows)
    assert (record["accuracy"], record["trees"], record["leaves"]) == (0.5, 2, 3)
    (record,) = records(forest, rows, "--epsilon", 0.1)
    assert (record["stability"], record["robust"], record["vulnerable"], record["no_info"]) == (1.0, 1, 1, 0)
    (record,) = records(forest, rows, "--epsilon", 0.6, "--sample-timeout", 9)
    assert (record["stability"], record["fragile"], record["broken"]) == (0.0, 1, 1)
    hard = write(tmp_path, "hard.silva", HARD_FOREST)
    (record,) = records(hard, rows, "--epsilon", 0.6, "--sample-steps", 1)
    assert (record["stability"], record["no_info"]) == (0.0, 2)


def test_a_model_from_standard_input(rows: str) -> None:
    (record,) = json.loads(run("evaluate", "-", rows, "--format", "json", stdin=TREE).stdout)["evaluations"]
    assert record["model"] == "<stdin>"


def test_a_warning_for_all_radii_is_told_once(tree: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "a,0.1,0.1\nx,0.9,0\n")
    result = run("evaluate", tree, rows, "--epsilon", 0, "--epsilon", 1, "--epsilon", 2)
    assert result.stderr.count("warning:") == 1
    assert "1 rows of" in result.stderr


def test_an_input_is_not_replaced(tree: str, rows: str) -> None:
    assert "is read by this command" in run("evaluate", tree, rows, "-o", tree, code=2).stderr
    assert Path(tree).read_text() == TREE


def test_classes(tree: str, rows: str) -> None:
    document = json.loads(run("evaluate", tree, rows, "--epsilon", "0.1", "--per-class", "--format", "json").stdout)
    (summary,) = document["evaluations"]
    (table,) = document["classes"]
    assert (table["model"], table["perturbation"]) == (tree, "l_inf 0.1")
    a, bb, c = table["classes"]
    assert a == {
        "label": "a", "rows": 3, "predicted": 3, "recall": 2 / 3, "precision": 2 / 3, "f1": 2 / 3, "stability": 1 / 3,
        "robust_accuracy": 1 / 3, "roc_auc": 9 / 12,
    }  # fmt: skip
    assert (bb["rows"], bb["recall"], bb["precision"]) == (2, 0, 0)
    assert summary["balanced_accuracy"] == pytest.approx((a["recall"] + bb["recall"] + c["recall"]) / 3)
    assert summary["roc_auc"] == pytest.approx((a["roc_auc"] + bb["roc_auc"] + c["roc_auc"]) / 3)
    assert summary["balanced_robust_accuracy"] == pytest.approx(1 / 9)
    text = run("evaluate", tree, rows, "--epsilon", "0.1", "--per-class").stdout
    assert f"{tree} under l_inf 0.1: classes\n\nlabel  rows  predicted  recall" in text
    lines = list(csv.DictReader(io.StringIO(run("evaluate", tree, rows, "--per-class", "--format", "csv").stdout)))
    assert [(line["model"], line["label"]) for line in lines] == [(tree, "a"), (tree, "bb"), (tree, "c")]
    assert "robust_accuracy" not in lines[0]


def test_of_many_classes_a_text_shows_the_worst(tmp_path: Path) -> None:
    labels = [f"l{number}" for number in range(30)]
    model = write(
        tmp_path, "m.silva", f"classifier-decision-tree 1 30 {' '.join(labels)} LEAF 1 {' '.join(['0'] * 29)}"
    )
    rows = write(tmp_path, "r.csv", "".join(f"{label},0\n" for label in labels))
    text = run("evaluate", model, rows, "--per-class").stdout
    assert "classes: the 20 of 30 with the lowest recall (--format csv has all)" in text
    assert len(text.splitlines()) == 2 + 1 + 2 + 21
    assert "\nl0 " not in text
    assert len(run("evaluate", model, rows, "--per-class", "--format", "csv").stdout.splitlines()) == 31


def test_classes_and_other_options(tree: str, rows: str) -> None:
    assert "--per-class" in run("evaluate", tree, rows, "--per-class", "--curve", code=2).stderr
    words = ["--per-class", "--ceiling", "--epsilon", "0.1", "--format", "csv"]
    assert "use json" in run("evaluate", tree, rows, *words, code=2).stderr
