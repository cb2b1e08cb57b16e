"""`metasilvae explain --sufficient`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import run, write

TABLE = "income,debt,sex,credit\n" + "".join(
    f"{income},{debt},{sex},{'good' if income > 30 or (debt < 5 and sex == 'male') else 'bad'}\n"
    for income in range(5, 60, 5)
    for debt in (0, 4, 8, 12)
    for sex in ("female", "male", "other")
)


@pytest.fixture(scope="module")
def credit(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("credit")
    table, model = write(folder, "credit.csv", TABLE), str(folder / "credit.silva")
    run("train", table, model, "--label-column", "credit", "--epsilon", 0, "--preset", "cart")
    return model, table


def test_a_reason_is_given_in_the_words_of_the_table(credit: tuple[str, str]) -> None:
    model, table = credit
    document = json.loads(run("explain", model, table, "--sufficient", "--format", "json").stdout)
    assert len(document["rows"]) == 11 * 4 * 3
    rich = [row for row in document["rows"] if row["sufficient"] and row["sufficient"][0]["column"] == "income"]
    assert rich
    assert all(row["is_smallest"] and row["is_minimal"] for row in document["rows"])
    last = document["rows"][-1]
    assert last["prediction"] == ["good"]
    assert last["sufficient"] == [{"column": "income", "value": 55.0}]
    text = run("explain", model, table, "--sufficient").stdout
    assert "132 of 132 rows have a proved sufficient set of columns; 132 of them are smallest" in text
    assert "sex = male" in text


def test_the_domain_limits_the_other_columns(tree: str, rows: str, tmp_path: Path) -> None:
    few = write(tmp_path, "few.csv", "a,0.1,0.1\na,0.2,0.2\n")
    document = json.loads(run("explain", tree, few, "--sufficient", "--domain", few, "--format", "json").stdout)
    assert [row["sufficient"] for row in document["rows"]] == [[], []]
    document = json.loads(run("explain", tree, few, "--sufficient", "--bounds", 0, 1, "--format", "json").stdout)
    assert [len(row["sufficient"]) for row in document["rows"]] == [2, 2]
    assert "any input gets it" in run("explain", tree, few, "--sufficient", "--domain", few).stdout


def test_a_limit_leaves_a_set_sufficient(hard_forest: tuple[str, str]) -> None:
    words = ("explain", *hard_forest, "--sufficient", "--sample-steps", 1, "--format", "json")
    for row in json.loads(run(*words).stdout)["rows"]:
        assert row["is_minimal"] or not row["is_smallest"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sufficient --epsilon 0.1", "--sufficient needs no perturbation"),
        ("--epsilon 0.1 --bounds 0 1", "--domain and --bounds belong to --sufficient"),
        ("--sufficient --domain {rows} --bounds 0 1", "--domain and --bounds both restrict"),
        ("", "say what may be perturbed"),
    ],
)
def test_wrong_usage_is_refused(words: str, message: str, tree: str, rows: str) -> None:
    assert message in run("explain", tree, rows, *words.format(rows=rows).split(), code=2).stderr
