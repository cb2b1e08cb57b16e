"""The predict command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.command import ROWS, TREE, run, write

PREDICTIONS = ["a", "a,bb", "bb,c", "a,bb,c", "bb,c", "a", "a"]


def test_one_prediction_a_line(tree: str, rows: str) -> None:
    assert run("predict", tree, rows).stdout.splitlines() == PREDICTIONS


def test_csv(tree: str, rows: str) -> None:
    lines = run("predict", tree, rows, "--format", "csv").stdout.splitlines()
    assert lines[:3] == ["row,label,prediction", "0,a,a", '1,bb,"a,bb"']
    assert len(lines) == 8


def test_jsonl(tree: str, rows: str) -> None:
    records = [json.loads(line) for line in run("predict", tree, rows, "--format", "jsonl").stdout.splitlines()]
    assert [",".join(record["prediction"]) for record in records] == PREDICTIONS
    assert records[4] == {"row": 4, "label": "bb", "prediction": ["bb", "c"]}


def test_to_a_file(tree: str, rows: str, tmp_path: Path) -> None:
    assert run("predict", tree, rows, "--output", tmp_path / "answers.txt").stdout == ""
    assert (tmp_path / "answers.txt").read_text().splitlines() == PREDICTIONS


def test_an_input_is_not_replaced(tree: str, rows: str) -> None:
    assert "is read by this command" in run("predict", tree, rows, "-o", rows, code=2).stderr
    assert Path(rows).read_text() == ROWS


def test_either_file_from_standard_input(tree: str, rows: str) -> None:
    assert run("predict", tree, "-", stdin=ROWS).stdout.splitlines() == PREDICTIONS
    assert run("predict", "-", rows, stdin=TREE).stdout.splitlines() == PREDICTIONS
    assert run("predict", tree, "-", stdin=gzip.compress(ROWS.encode())).stdout.splitlines() == PREDICTIONS


def test_messages_call_standard_input_by_name(tree: str) -> None:
    assert run("predict", tree, "-", stdin="a,1,x\n", code=1).stderr.startswith("error: <stdin>:1: ")
    assert run("predict", tree, "-", stdin="", code=1).stderr == "error: <stdin>: the file is empty\n"


def test_a_forest_votes(forest: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "a,0.1,0\nb,0.9,0\n")
    assert run("predict", forest, rows).stdout.splitlines() == ["a", "a,b"]
    assert run("predict", forest, rows, "--voting", "max").stdout.splitlines() == ["a", "a,b"]
    assert run("predict", forest, rows, "--voting", "average").stdout.splitlines() == ["a", "b"]
    assert "use --voting max or average" in run("predict", forest, rows, "--voting", "softargmax", code=2).stderr


def test_scores_are_added_up(tmp_path: Path) -> None:
    text = (
        "classifier-forest 2\n"
        + 2 * "classifier-decision-tree 1 2 a b SPLIT 0 0 LEAF_LOGARITHMIC 1 -1 LEAF_LOGARITHMIC -2 2.5\n"
    )
    model = write(tmp_path, "boosted.silva", text)
    rows = write(tmp_path, "r.csv", "a,-1\nb,1\n")
    assert run("predict", model, rows).stdout.splitlines() == ["a", "b"]
    assert "use --voting softargmax" in run("predict", model, rows, "--voting", "max", code=2).stderr


def test_labels_unknown_to_the_model_do_not_matter(tree: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "?,0.1,0.1\n")
    result = run("predict", tree, rows)
    assert (result.stdout, result.stderr) == ("a\n", "")


@pytest.mark.parametrize("words", [["--label-column", "last"], ["--label-column", "3"], ["--label-column", "class"]])
def test_the_label_can_stand_anywhere(tree: str, tmp_path: Path, words: list[str]) -> None:
    lines = [",".join([*line.split(",")[1:], line.split(",")[0]]) for line in ROWS.splitlines()[1:]]
    rows = write(tmp_path, "r.csv", "\n".join(["u,v,class", *lines]))
    assert run("predict", tree, rows, *words).stdout.splitlines() == PREDICTIONS


def test_rows_without_labels(tree: str, tmp_path: Path) -> None:
    lines = [line.partition(",")[2] for line in ROWS.splitlines()[1:]]
    for text in (lines, ["# 7 2", *lines], ["u,v", *lines]):
        rows = write(tmp_path, "r.csv", "\n".join(text))
        result = run("predict", tree, rows, "--label-column", "none")
        assert (result.stdout.splitlines(), result.stderr) == (PREDICTIONS, "")
    assert run("predict", tree, rows, "--label-column", "none", "--format", "csv").stdout.splitlines()[:3] == [
        "row,prediction",
        "0,a",
        '1,"a,bb"',
    ]
    first = run("predict", tree, rows, "--label-column", "none", "--format", "jsonl").stdout.splitlines()[0]
    assert json.loads(first) == {"row": 0, "prediction": ["a"]}


def test_a_single_column_without_labels(tmp_path: Path) -> None:
    model = write(tmp_path, "m.silva", "classifier-decision-tree 1 2 a b SPLIT 0 0 LEAF 1 0 LEAF 0 1")
    rows = write(tmp_path, "r.csv", "-1\n0\n1\n")
    assert run("predict", model, rows, "--label-column", "none").stdout.splitlines() == ["a", "a", "b"]


def test_rows_without_labels_that_are_broken(tree: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "0,1\n0,x\n")
    assert (
        f"{rows}:2: column 2: 'x' is not a number"
        in run("predict", tree, rows, "--label-column", "none", code=1).stderr
    )
    rows = write(tmp_path, "r.csv", "0,1,2\n")
    assert "has 3 features" in run("predict", tree, rows, "--label-column", "none", code=1).stderr
    rows = write(tmp_path, "r.libsvm", "a 1:1\n")
    assert "are for CSV data" in run("predict", tree, rows, "--label-column", "none", code=2).stderr


def test_other_commands_need_labels(tree: str, rows: str, tmp_path: Path) -> None:
    for words in (
        ["verify", tree, rows],
        ["evaluate", tree, rows],
        ["data", "check", rows],
        ["data", "convert", rows, tmp_path / "out.csv"],
        ["data", "split", rows, "--test", "0.5"],
    ):
        message = run(*words, "--label-column", "none", code=2).stderr
        assert "--label-column none is only for predict; all other commands need labels" in message


def test_probabilities(tree: str, rows: str) -> None:
    lines = run("predict", tree, rows, "--proba").stdout.splitlines()
    assert lines[:3] == [
        "row,label,prediction,probability_a,probability_bb,probability_c",
        "0,a,a,1.0,0.0,0.0",
        '1,bb,"a,bb",0.5,0.5,0.0',
    ]
    assert run("predict", tree, rows, "--proba", "--format", "csv").stdout.splitlines() == lines
    records = [
        json.loads(line) for line in run("predict", tree, rows, "--proba", "--format", "jsonl").stdout.splitlines()
    ]
    assert records[1]["probabilities"] == {"a": 0.5, "bb": 0.5, "c": 0.0}
    assert [list(record) for record in records] == [["row", "label", "prediction", "probabilities"]] * 7
    assert "csv or jsonl" in run("predict", tree, rows, "--proba", "--format", "text", code=2).stderr


def test_probabilities_are_those_of_the_voting(forest: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "a,0.1,0\nb,0.9,0\n")

    def shares(*words: str) -> list[str]:
        return [
            line.split(",", 3)[-1] for line in run("predict", forest, rows, "--proba", *words).stdout.splitlines()[1:]
        ]

    assert shares() == ["1.0,0.0", 'b",0.5,0.5']
    assert shares("--voting", "average") == ["0.875,0.125", "0.375,0.625"]
