"""Commands on a raw table: one model, every command, in the words of the table."""

import json
import re
from pathlib import Path

import pytest
from support.command import run, write

ATTACK = """[columns]
"*_mm" = { radius = "5% of value" }
sex = { any = true }
island = { swap = [["Biscoe", "Dream"]] }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    run("data", "convert", "builtin:penguins/train", folder / "raw.csv")
    lines = [line for line in (folder / "raw.csv").read_text().splitlines() if ",,," not in line]
    # The label last, and an identifier first.
    rows = [line.split(",") for line in lines]
    table = [",".join([f"bird {n}" if n else "name", *row[1:], row[0]]) for n, row in enumerate(rows)]
    (folder / "birds.csv").write_text("\n".join(table) + "\n")
    (folder / "attack.toml").write_text(ATTACK)
    run(
        "train", folder / "birds.csv", folder / "birds.silva", "--label-column", "species", "--id", "name", "--attack",
        folder / "attack.toml", "--preset", "fast",
    )  # fmt: skip
    return folder


def test_adversarial_examples_are_rows_of_the_table(folder: Path) -> None:
    found = folder / "found.csv"
    attack = ("--attack", folder / "attack.toml")
    run("verify", folder / "birds.silva", folder / "birds.csv", *attack, "--counterexamples", found, "--format", "csv")
    head, *rows = found.read_text().splitlines()
    assert head.startswith("species,island,bill_length_mm")
    assert head.endswith("year,#name,#row,#prediction,#perturbed_prediction")
    assert rows
    assert all(row.split(",")[8].startswith("bird ") for row in rows)
    # They can be read as data, and have the predictions that they are said to have.
    again = run("predict", folder / "birds.silva", found, "--format", "text").stdout.splitlines()
    assert again == [row.rpartition(",")[2] for row in rows]


def test_predictions_have_identifiers_and_need_no_label(folder: Path, tmp_path: Path) -> None:
    text = (folder / "birds.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join(line.rpartition(",")[0] for line in text[:3]) + "\n")
    lines = run("predict", folder / "birds.silva", tmp_path / "new.csv", "--format", "csv").stdout.splitlines()
    assert lines == ["row,name,prediction", "0,bird 1,Adelie", "1,bird 2,Adelie"]


def test_reports_speak_of_the_table(folder: Path) -> None:
    files = folder / "birds.silva", folder / "birds.csv"
    attack = ("--attack", folder / "attack.toml")
    text = run("explain", *files, *attack).stdout
    assert "bird " in text
    document = json.loads(run("explain", *files, *attack, "--format", "json").stdout)
    assert all(row["ids"]["name"].startswith("bird ") for row in document["rows"])
    assert all({"column", "from", "to"} == change.keys() for row in document["rows"] for change in row["changes"])
    tree = run("export", folder / "birds.silva", "--to", "text").stdout
    dot = run("export", folder / "birds.silva", "--to", "dot").stdout
    page = folder / "page.html"
    run("report", *files, *attack, "-o", page)
    for words in (tree, dot, page.read_text()):
        assert "<= 0.5" not in words
        assert "bill_length_mm" in words
    run("diff", folder / "birds.silva", folder / "birds.silva", folder / "birds.csv")
    run("simplify", folder / "birds.silva", "-o", folder / "small.silva", "--domain", folder / "birds.csv")
    run("evaluate", folder / "small.silva", folder / "birds.silva", folder / "birds.csv", *attack)


def test_unknown_categories_are_one_line(folder: Path, tmp_path: Path) -> None:
    text = (folder / "birds.csv").read_text().replace("Dream", "Mars", 1)
    (tmp_path / "mars.csv").write_text(text)
    result = run("predict", folder / "birds.silva", tmp_path / "mars.csv", code=1)
    assert "'Mars' is not among the 3 categories" in result.stderr
    assert result.stderr.count("\n") == 1


def test_training_takes_missing_numbers(folder: Path) -> None:
    run("train", folder / "raw.csv", folder / "holed.silva", "--epsilon", "1", "--preset", "fast")
    found = run("verify", folder / "holed.silva", folder / "raw.csv", "--epsilon", "1", "--format", "json").stdout
    assert "275" in found


def test_data_schema_round_trip(folder: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    run("data", "schema", folder / "birds.csv", "--label-column", "species", "--id", "name", "-o", schema)
    assert 'name = { type = "ignored" }' in schema.read_text()
    found = json.loads(run("data", "check", folder / "birds.csv", "--schema", schema, "--format", "json").stdout)
    assert {column["name"]: column["kind"] for column in found["columns"]} == {
        "species": "label", "island": "category", "bill_length_mm": "number", "bill_depth_mm": "number",
        "flipper_length_mm": "number", "body_mass_g": "number", "sex": "category", "year": "number", "name": "ignored",
    }  # fmt: skip


def test_numbers_that_name_rows_cause_a_hint(tmp_path: Path) -> None:
    lines = [f"{'ab'[number % 2]},{1000 + 3 * number},{number % 2}" for number in range(40)]
    rows = write(tmp_path, "rows.csv", "\n".join(["label,customer_id,x", *lines, ""]))
    told = run("train", rows, tmp_path / "m.silva", "--epsilon", "0.1", "--preset", "fast").stderr
    assert "customer_id' is a different whole number in each row" in told
    assert "--id customer_id" in run("data", "check", rows).stdout
    quiet = run("train", rows, tmp_path / "m.silva", "--epsilon", "0.1", "--preset", "fast", "--id", "customer_id")
    assert "whole number" not in quiet.stderr


def test_columns_that_identify_rows_are_no_features_of_a_model_without_encoding(tmp_path: Path) -> None:
    lines = [f"{'ab'[number % 2]},row {number},{number % 2},{number}" for number in range(20)]
    named = write(tmp_path, "named.csv", "\n".join(["label,name,x,z", *lines, ""]))
    bare = write(tmp_path, "bare.csv", re.sub(",(name|row [0-9]+)", "", Path(named).read_text()))
    model = tmp_path / "m.silva"
    run("train", bare, model, "--epsilon", "0.1", "--preset", "fast", "--plain")
    found = run("evaluate", model, named, "--id", "name", "--format", "csv").stdout
    assert found == run("evaluate", model, bare, "--format", "csv").stdout
    explained = run("explain", model, named, "--id", "name", "--epsilon", "2", "--format", "json").stdout
    assert "row 3" in explained
    assert "2 (name): 'row 0' is not a number (20 such cells)" in run("evaluate", model, named, code=1).stderr
    assert "no column is called names (--id)" in run("evaluate", model, named, "--id", "names", code=1).stderr
