"""`metasilvae prove`."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from support.command import run, write
from support.hard_searches import write_endless_search
from support.remote_tasks import wait_until

TABLE = "credit,income,debt,sex,member\n" + "".join(
    f"{'good' if income - debt + 8 * (sex == 'male') > 20 else 'bad'},{income},{debt},{sex},{member}\n"
    for income in range(5, 60, 3)
    for debt in range(0, 25, 6)
    for sex in ("female", "male", "other")
    for member in ("yes", "no")
)
# Two stumps of scores: 1.5, 0.5, -0.5 and -1.5.
SCORES = "classifier-forest 2\n" + "".join(
    f"classifier-decision-tree 2 2 0 1\nSPLIT {feature} 0\nLEAF_LOGARITHMIC 0 {left}\nLEAF_LOGARITHMIC 0 {right}\n"
    for feature, left, right in ((0, 1, -1), (1, -0.5, 0.5))
)


@pytest.fixture(scope="module")
def credit(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model of a table, and the table."""
    folder = tmp_path_factory.mktemp("credit")
    table, model = write(folder, "credit.csv", TABLE), str(folder / "credit.silva")
    run("train", table, model, "--epsilon", 0, "--preset", "fast", "--trees", 5)
    return model, table


def test_a_column_that_is_not_tested_is_proved(tree: str) -> None:
    result = run("prove", tree, "--insensitive-to", 0, code=3)
    assert (
        "claim   inputs that differ only in x[0] get the same prediction\n\nrefuted by these two inputs"
        in result.stdout
    )
    stump = "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n"
    assert run("prove", "-", "--insensitive-to", "1", stdin=stump).stdout.endswith("\nproved for every input\n")


def test_a_refuted_claim_shows_two_inputs_in_the_words_of_the_table(credit: tuple[str, str]) -> None:
    model, table = credit
    document = json.loads(run("prove", model, "--insensitive-to", "sex", "--format", "json", code=3).stdout)
    assert document["result"] == "refuted"
    pair = document["pair"]
    assert pair["columns"] == ["income", "debt", "sex", "member"]
    assert pair["changed"] == ["sex"]
    assert {pair["first"][2], pair["second"][2]} <= {"female", "male", "other"}
    text = run("prove", model, "--insensitive-to", "sex", "--domain", table, "--format", "csv", code=3).stdout
    first, second = csv.DictReader(io.StringIO(text))
    assert [first["input"], second["input"]] == ["first", "second"]
    assert {name for name in first if first[name] != second[name]} == {"input", "prediction", "sex"}
    # The two inputs are a table that the model predicts as shown.
    rows = [[row[name] for name in ("prediction", "income", "debt", "sex", "member")] for row in (first, second)]
    shown = "credit,income,debt,sex,member\n" + "".join(",".join(row) + "\n" for row in rows)
    predicted = run("predict", model, "-", stdin=shown).stdout.split()
    assert predicted == [first["prediction"], second["prediction"]]


def test_a_boolean_takes_two_values(credit: tuple[str, str]) -> None:
    model, table = credit
    result = run("prove", model, "--insensitive-to", "member", "--domain", table, code=None)
    assert result.exit_code in (0, 3)
    assert ("proved" in result.stdout) == (result.exit_code == 0)


def test_margins_and_directions(tmp_path: Path) -> None:
    model = write(tmp_path, "scores.silva", SCORES)
    assert "\nmargin " in run("prove", model, "--insensitive-to", 0, "--margin", 0.5, code=3).stdout
    run("prove", model, "--insensitive-to", 0, "--margin", 0.6)
    run("prove", model, "--monotone", "0=down,1=up", "--of", "score")
    refuted = run("prove", model, "--monotone", "1=down", "--of", "score", code=3).stdout
    assert "claim   lowering x[1] never lowers the score of 1\n" in refuted
    assert "score of 1" in refuted
    run("prove", model, "--monotone", "1=down")
    run("prove", model, "--monotone", "0=up", "--target", "0")
    run("prove", model, "--monotone", "0=up", "--bounds", 0.5, 3)


def test_a_region_is_the_limits_of_a_file_or_the_range_of_data(tree: str, tmp_path: Path) -> None:
    region = write(tmp_path, "region.toml", "[columns]\n0 = { max = 0.5 }\n1 = { max = 0.25 }\n")
    assert "inputs  the limits of" in run("prove", tree, "--stable-on", region).stdout
    wider = write(tmp_path, "wider.toml", "[columns]\n0 = { max = 0.5 }\n")
    assert "all inputs get the same prediction" in run("prove", tree, "--stable-on", wider, code=3).stdout
    data = write(tmp_path, "few.csv", "a,0.1,0.1\na,0.2,0.2\n")
    run("prove", tree, "--stable-on", data)
    whole = write(
        tmp_path, "whole.toml", "[columns]\n0 = { min = 0.1, max = 1.5, integer = true }\n1 = { values = [0, 0.5] }\n"
    )
    run("prove", tree, "--stable-on", whole)


def test_a_domain_of_rules_restricts_both_inputs(credit: tuple[str, str], tmp_path: Path) -> None:
    model, _ = credit
    rich = write(tmp_path, "rich.toml", "[columns]\nincome = { min = 58 }\ndebt = { max = 0 }\n")
    assert "proved" in run("prove", model, "--insensitive-to", "sex", "--domain", rich).stdout


def test_a_limit_leaves_it_undecided(hard_forest: tuple[str, str], tmp_path: Path) -> None:
    model = str(tmp_path / "boosted.silva")
    run("train", "builtin:wine/train", model, "--epsilon", 0.1, "--boost", 20, "--no-tune")
    words = ("prove", model, "--insensitive-to", "proline", "--margin", 0.4)
    full = json.loads(run(*words, "--format", "json", code=None).stdout)
    assert full["result"] in ("proved", "refuted")
    if full["steps"] > 1:
        result = run(*words, "--max-steps", 1, code=4)
        assert "undecided, the number of steps was reached (--max-steps)" in result.stdout


def test_the_csv_of_a_proof_has_no_rows(tmp_path: Path) -> None:
    model = write(tmp_path, "scores.silva", SCORES)
    text = run("prove", model, "--monotone", "0=down", "--format", "csv").stdout
    assert text == "input,prediction,x[0],x[1]\n"


def test_regions_list_categories_and_booleans(credit: tuple[str, str], tmp_path: Path) -> None:
    model, _ = credit
    numbers = "income = { min = 30, max = 59 }\ndebt = { min = 0, max = 3 }\n"

    def ask(listed: str, code: int) -> str:
        region = write(tmp_path, "region.toml", f"[columns]\n{numbers}{listed}\n")
        return run("prove", model, "--stable-on", region, code=code).stdout

    assert "proved" in ask('sex = { values = ["male"] }', 0)
    edge = numbers
    numbers = "income = { min = 14, max = 20 }\ndebt = { min = 0, max = 0 }\n"
    assert "proved" in ask('sex = { values = ["male"] }', 0)
    refuted = ask('sex = { values = ["male", "female"] }', 3)
    assert "other" not in refuted
    document = json.loads(
        run("prove", model, "--insensitive-to", "sex", "--domain", tmp_path / "region.toml", "--format", "json", code=3)
        .stdout
    )  # fmt: skip
    assert {document["pair"]["first"][2], document["pair"]["second"][2]} == {"male", "female"}
    numbers = edge
    ask('member = { values = ["yes"] }', 0)
    for listed, message in (
        ('sex = { values = ["mal"] }', "sex has no value 'mal'; did you mean male?"),
        ('sex = { values = ["male", "male"] }', "a value is listed twice"),
        ('sex = { values = ["male", 1] }', "is not a number"),
        ('income = { values = ["male"] }', "already has a rule"),
        ('member = { values = ["perhaps"] }', "member has no value 'perhaps'; its values are"),
    ):
        region = write(tmp_path, "region.toml", f"[columns]\n{numbers if 'income' not in listed else ''}{listed}\n")
        found = run("prove", model, "--stable-on", region, code=1).stderr
        assert message in found or "income is a number; list numbers" in found
        assert found.count("\n") == 1
    region = write(tmp_path, "region.toml", '[columns]\nsex = { values = ["male"] }\n')
    refused = run("verify", model, credit[1], "--attack", region, code=1).stderr
    assert "whose values describe a region for `prove`" in refused


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("question", ["--stable-on", "--insensitive-to", "--stable-share"])
def test_a_signal_ends_a_long_proof_and_reports_what_is_known(question: str, number: int, tmp_path: Path) -> None:
    forest, _ = write_endless_search(tmp_path, [0.4])
    region = write(tmp_path, "region.toml", "[default]\nmin = 0.3\nmax = 0.7\n")
    words = {"--stable-on": [region], "--insensitive-to": ["0", "--domain", region]}.get(
        question, ["--epsilon", "0.2", "--domain", region]
    )

    def send() -> None:
        """Wait until the command takes signals."""
        wait_until(lambda: getattr(getattr(signal.getsignal(number), "__self__", None), "stop", None) is not None)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    out = run("prove", forest, question, *words, "--time-limit", 60, code=128 + number).stdout
    sender.join()
    assert "the search was interrupted" in out
    if question == "--stable-share":
        assert "between 0.0000 % and 100.0000 % of the volume" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give one of --insensitive-to, --monotone, --stable-on and --stable-share"),
        ("--insensitive-to 0 --monotone 0=up", "give one of"),
        ("--monotone 0", "'0': expected a column once and up or down"),
        ("--monotone 0=up,0=down", "expected a column once"),
        ("--monotone 0=up", "--target): a, bb, c"),
        ("--monotone 0=up --target d", "target 'd'"),
        ("--insensitive-to 0 --target a", "--target and --of belong to --monotone"),
        ("--insensitive-to 0 --domain {rows} --bounds 0 1", "--domain and --bounds both restrict"),
        ("--insensitive-to 0 --margin -1", "--margin"),
        ("--stable-share", "--stable-share needs --epsilon E"),
        ("--insensitive-to 0 --epsilon 0.1", "--epsilon and --at-least belong to it"),
        ("--stable-share --epsilon x", "'x' is not a valid number"),
        ("--stable-share --epsilon nan", "'nan' is not a number"),
        ("--insensitive-to 0 --margin nan", "'nan' is not a number"),
        ("--stable-share --epsilon 0.1", "has no bounds, so that there is no volume"),
        ("--stable-on {rows} --margin 1", "leave --domain, --bounds and --margin out"),
    ],
)
def test_wrong_usage_is_refused(words: str, message: str, tree: str, rows: str) -> None:
    assert message in run("prove", tree, *words.format(rows=rows).split(), code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--insensitive-to 2", "has no column 2; numbers go from 0 to 1"),
        ("--insensitive-to age", "has no column age; its columns are not named"),
        ("--stable-on missing.toml", "missing.toml"),
        ("--stable-on {empty}", "no whole number lies from 0.2 to 0.8"),
    ],
)
def test_wrong_inputs_are_refused(words: str, message: str, tree: str, tmp_path: Path) -> None:
    empty = write(tmp_path, "empty.toml", "[columns]\n0 = { min = 0.2, max = 0.8, integer = true }\n")
    assert message in run("prove", tree, *words.format(empty=empty).split(), code=1).stderr


def test_categories_have_no_direction(credit: tuple[str, str]) -> None:
    message = run("prove", credit[0], "--monotone", "sex=up", "--target", "good", code=2).stderr
    assert "which has no direction" in message


def test_the_stable_share_of_a_volume(tmp_path: Path) -> None:
    """Strips of 0.2 beside the threshold of the only test are unstable."""
    model = write(tmp_path, "stump.silva", "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    words = ("prove", model, "--stable-share", "--epsilon", 0.1, "--bounds", 0, 1)
    assert "stable at epsilon 0.1: 80.0000 % of the volume\n" in run(*words).stdout
    run(*words, "--at-least", 0.75)
    run(*words, "--at-least", 0.85, code=3)
    assert json.loads(run(*words, "--format", "json").stdout)["stable_share"] == pytest.approx(0.8)
    limited = run(*words, "--max-steps", 1, "--at-least", 0.75, code=4).stdout
    assert "between 0.0000 % and 100.0000 % of the volume (the number of steps was reached (--max-steps))" in limited
    huge = run("prove", model, "--stable-share", "--epsilon", 1e308, "--bounds", 0, 1e308)
    assert "0.0000 % of the volume" in huge.stdout
    assert huge.stderr == ""
    (record,) = csv.DictReader(io.StringIO(run(*words, "--format", "csv").stdout))
    assert float(record["stable_share"]) == pytest.approx(0.8)
