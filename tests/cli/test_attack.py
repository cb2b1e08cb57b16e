"""``metasilvae attack``, and ``--attack`` of the other commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import run, write

from metasilvae.dataset import Dataset
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.attack_templates import TEMPLATES, write_template

PEOPLE = """\
answer,age,sex,income,red,green,blue
yes,30,0,1.5,1,0,0
no,40,1,2.5,0,1,0
yes,50,0,3.5,0,0,1
no,60,1,4.5,1,0,0
"""
TREE = """\
classifier-decision-tree 6 2 yes no
SPLIT 0 45.5
SPLIT 1 0.5
LEAF 1 0
LEAF 0 1
SPLIT 4 0.5
LEAF 0 1
LEAF 1 0
"""


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "tree.silva", TREE)
    return write(tmp_path, "people.csv", PEOPLE)


def test_a_template_names_every_column(people: str) -> None:
    text = run("attack", "template", people).stdout
    rules = parse_attack(text.encode(), "template")
    assert list(rules.columns) == ["age", "sex", "income", "red", "green", "blue"]
    assert rules.columns["age"].is_whole
    assert not rules.columns["income"].is_whole
    assert (rules.columns["age"].reference, rules.columns["sex"].up) == ((30, 60), 0)


@pytest.mark.parametrize(
    ("preset", "age", "sex", "income"),
    [
        ("fairness-cat", "fixed", "any of the 2 values 0, 1", "fixed"),
        ("fairness-noise", "whole numbers, up or down by at most 3", "fixed", "up or down by at most 0.3"),
        ("fairness-noise-cat", "whole numbers, up or down by at most 3", "any of the 2 values 0, 1", "up or down by"),
    ],
)
def test_fairness_presets(people: str, preset: str, age: str, sex: str, income: str) -> None:
    run("attack", "template", people, "--preset", preset, "--protected", "sex", "--noise", "10%", "-o", "fair.toml")
    lines = run("attack", "check", "fair.toml", people).stdout.splitlines()
    for line, name, words in zip(lines, ("age", "sex", "income"), (age, sex, income), strict=False):
        assert line.startswith(name)
        assert words in line
    assert "all 4 rows" in lines[-1]


def test_one_hot_columns_as_a_protected_attribute(people: str) -> None:
    run("attack", "template", people, "--preset", "fairness-cat", "--one-hot", "red,green,blue", "-o", "fair.toml")
    assert "exactly one of red, green, blue is 1" in run("attack", "check", "fair.toml", people).stdout
    report = run("verify", "tree.silva", people, "--attack", "fair.toml", "--format", "jsonl").stdout
    verdicts = [record["verdict"] for line in report.splitlines() if "verdict" in (record := json.loads(line))]
    # The colour decides above 45.5 only.
    assert verdicts == ["ROBUST", "ROBUST", "BROKEN", "FRAGILE"]


def test_a_check_in_words(people: str) -> None:
    write(
        Path.cwd(),
        "attack.toml",
        "[columns]\nage = { up = 2, integer = true, max = 99 }\nincome = { down = 0.5, up = 1 }\n"
        "sex = { values = [0, 1], down = 0 }\nred = { radius = inf, min = 0 }\ngreen = { down = 1 }\n",
    )
    words = run("attack", "check", "attack.toml", people).stdout
    for line in (
        "age     whole numbers, up only, by at most 2, not above 99",
        "sex     any of the 2 values 0, 1, up only",
        "income  down by at most 0.5, up by at most 1",
        "red     any value, not below 0",
        "green   down only, by at most 1",
        "blue    fixed",
    ):
        assert line in words


def test_an_attack_that_allows_nothing_is_told(people: str) -> None:
    write(Path.cwd(), "attack.toml", "")
    assert "no value can change" in run("attack", "check", "attack.toml", people).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "fairness-cat"], "is about protected columns; name them"),
        (["--protected", "sx"], "has no column sx"),
        (["--protected", "sex,"], "separated by commas"),
        (["--protected", "red", "--one-hot", "red,blue"], "column red is named twice"),
        (["--noise", "much"], "noise 'much': expected a number"),
        (["--noise", "-1"], "noise '-1': expected a number"),
    ],
)
def test_wrong_templates(people: str, arguments: list[str], message: str) -> None:
    assert message in run("attack", "template", people, *arguments, code=2).stderr


def test_templates_of_several_files_hold_all_values(people: str) -> None:
    other = write(Path.cwd(), "more.csv", PEOPLE.replace("no,60,1", "no,60,7"))
    text = run("attack", "template", people, other, "--protected", "sex").stdout
    assert "sex = { values = [0, 1, 7] }" in text
    narrow = write(Path.cwd(), "narrow.csv", "answer,age\nyes,3\n")
    assert "different columns" in run("attack", "template", people, narrow, code=1).stderr


@settings(max_examples=60)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="["), min_size=1, max_size=6), min_size=3, max_size=3
    ),
    st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=4),
    st.sampled_from(list(TEMPLATES)),
)
def test_templates_fit_the_data_they_were_made_of(names: list[str], values: list[list[float]], preset: str) -> None:
    X = np.array(values)
    dataset = Dataset(X, np.zeros(len(X), dtype=np.int32), ("a",), tuple(names), "data.csv")
    text = "".join(write_template(dataset, preset, ["x[1]"]))
    fit_attack(parse_attack(text.encode(), "template"), dataset).boxes(dataset)


def test_training_and_verification_take_the_same_file(people: str) -> None:
    write(Path.cwd(), "attack.toml", "[default]\nup = 2\n[columns]\nage = { up = 12, integer = true }\n")
    arguments = ["--attack", "attack.toml", "--preset", "fast"]
    assert "attack attack.toml" in run("train", people, "new.silva", *arguments, "--test", people).stdout
    run("verify", "new.silva", people, "--attack", "attack.toml", "--require", "stability>=0")
    run("train", people, "forest.silva", *arguments, "--trees", "3")
    run("verify", "forest.silva", people, "--attack", "attack.toml", "--counterexamples", "adversarial.csv")
    assert "unstable" in run("explain", "tree.silva", people, "--attack", "attack.toml").stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["verify", "tree.silva", "people.csv", "--epsilon", "1"], "--attack and --epsilon exclude each other"),
        (["verify", "tree.silva", "people.csv", "--tiers", "1", "0"], "--tiers cannot be combined with --attack"),
        (
            ["train", "people.csv", "x.silva", "--perturbation", "l_inf", "1"],
            "--attack and --perturbation exclude each other",
        ),
        (["verify", "-", "people.csv", "--attack", "-"], "standard input (-) can be used for one"),
    ],
)
def test_contradictions(people: str, command: list[str], message: str) -> None:
    write(Path.cwd(), "attack.toml", "")
    extra = [] if "--attack" in command else ["--attack", "attack.toml"]
    assert message in run(*command, *extra, code=2).stderr


def test_rows_of_a_test_file_are_checked_before_training(people: str) -> None:
    write(Path.cwd(), "attack.toml", "[columns]\nsex = { values = [0, 1] }\n")
    odd = write(Path.cwd(), "odd.csv", PEOPLE.replace("no,60,1", "no,60,7"))
    result = run("train", people, "new.silva", "--attack", "attack.toml", "--test", odd, code=1)
    assert "sex = 7.0 is not among the listed values (attack.toml:2: columns.sex)" in result.stderr
    assert not Path("new.silva").exists()


def test_an_attack_that_allows_nothing_is_warned_of(people: str) -> None:
    Path("empty.toml").touch()
    for command in (
        ["verify", "tree.silva", people],
        ["evaluate", "tree.silva", people],
        ["train", people, "out.silva"],
    ):
        assert "allows no value to change" in run(*command, "--attack", "empty.toml").stderr
