"""`metasilvae verify --radius` and `metasilvae evaluate --curve`."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path

import pytest
from support.command import run, write

CONSTANT = "classifier-decision-tree 2 3 a bb c\nLEAF 1 0 0\n"


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_radii_fit_the_verdicts(tree: str, rows: str) -> None:
    records = read_csv(run("verify", tree, rows, "--radius", "--format", "csv").stdout)
    assert [record["row"] for record in records] == [str(number) for number in range(7)]
    for record in records:
        radius = float(record["radius"])
        for epsilon, is_stable in ((radius, True), (math.nextafter(radius, math.inf), False)):
            verdicts = read_csv(run("verify", tree, rows, "--epsilon", repr(epsilon), "--format", "csv").stdout)
            verdict = verdicts[int(record["row"])]
            assert (verdict["verdict"] in ("ROBUST", "VULNERABLE")) == is_stable
            assert verdict["prediction"] == record["prediction"]
        assert record["correct"] == str(int(record["label"] == record["prediction"]))


def test_reports(tree: str, rows: str, tmp_path: Path) -> None:
    text = run("verify", tree, rows, "--radius").stdout
    assert "perturbation  radius times l_inf 1\n" in text
    assert "median" in text
    document = json.loads(run("verify", tree, rows, "--radius", "--format", "json").stdout)
    lines = run("verify", tree, rows, "--radius", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines[:-1]] == document["rows"]
    assert document["rows_exact"] == 7
    target = tmp_path / "radii.csv"
    assert "most fragile rows" in run("verify", tree, rows, "--radius", "-o", target).stdout
    assert [float(record["radius"]) for record in read_csv(target.read_text())] == [
        record["radius"] for record in document["rows"]
    ]


def test_infinite_radii(rows: str, tmp_path: Path) -> None:
    constant = write(tmp_path, "constant.silva", CONSTANT)
    assert "7 rows keep their prediction at every radius" in run("verify", constant, rows, "--radius").stdout
    document = json.loads(run("verify", constant, rows, "--radius", "--format", "json").stdout)
    assert [record["radius"] for record in document["rows"]] == [None] * 7
    assert read_csv(run("verify", constant, rows, "--radius", "--format", "csv").stdout)[0]["radius"] == "inf"
    curve = read_csv(run("evaluate", constant, rows, "--curve", "--format", "csv").stdout)
    assert [(line["epsilon"], line["stability"]) for line in curve] == [("inf", "1.0")]


def test_nearest_witnesses_are_data(tree: str, rows: str, tmp_path: Path) -> None:
    target = tmp_path / "nearest.csv"
    run("verify", tree, rows, "--radius", "--counterexamples", target)
    witnesses = read_csv(target.read_text())
    assert len(witnesses) == 7
    predictions = run("predict", tree, target).stdout.splitlines()
    assert predictions == [witness["#perturbed_prediction"] for witness in witnesses]
    assert all(witness["#prediction"] != witness["#perturbed_prediction"] for witness in witnesses)


def test_weights(tree: str, rows: str, tmp_path: Path) -> None:
    fixed = write(tmp_path, "fixed.txt", "0, 1\n")
    records = read_csv(run("verify", tree, rows, "--radius", "--feature-weights", fixed, "--format", "csv").stdout)
    # Row 4 is (0.51, 0.2): with the first feature fixed, the second must pass 0.75.
    assert float(records[4]["radius"]) == pytest.approx(0.55)
    verdicts = read_csv(
        run("verify", tree, rows, "--epsilon", "0.5", "--feature-weights", fixed, "--format", "csv").stdout
    )
    assert verdicts[4]["verdict"] == "VULNERABLE"
    assert "--feature-weights " + fixed in run("verify", tree, rows, "--radius", "--feature-weights", fixed).stdout
    for text, message in (("1 x", "fixed.txt:1: 'x' is not a number"), ("1", "has 1 weights"), ("1 -1", "is -1")):
        write(tmp_path, "fixed.txt", text)
        assert message in run("verify", tree, rows, "--radius", "--feature-weights", fixed, code=1).stderr


def test_radii_in_multiples_of_an_attack(tree: str, rows: str, tmp_path: Path) -> None:
    weights = write(tmp_path, "weights.txt", "0.5 0")
    attack = write(tmp_path, "attack.toml", "[default]\nradius = 0.5\n[columns]\n1 = { immutable = true }\n")
    expected = run("verify", tree, rows, "--radius", "--feature-weights", weights, "--format", "csv").stdout
    assert run("verify", tree, rows, "--radius", "--attack", attack, "--format", "csv").stdout == expected
    assert (
        "leave --feature-weights out"
        in run("verify", tree, rows, "--attack", attack, "--feature-weights", weights, code=2).stderr
    )
    endless = write(tmp_path, "endless.toml", "[default]\nradius = 0.5\n[columns]\n1 = { radius = inf }\n")
    # The second column alone changes the answer of every row.
    found = read_csv(run("verify", tree, rows, "--radius", "--attack", endless, "--format", "csv").stdout)
    assert {record["radius"] for record in found} == {"0.0"}


def test_clipped_radii(tree: str, rows: str) -> None:
    clipped = run(
        "verify", tree, rows, "--radius", "--perturbation", "l_inf-clip-all", "1", "0.1", "0.9", "--format", "csv"
    )
    plain = run("verify", tree, rows, "--radius", "--format", "csv")
    assert clipped.stdout == plain.stdout
    cut = run("verify", tree, rows, "--radius", "--perturbation", "l_inf-clip-all", "1", "0.2", "1", code=1)
    assert "does not lie in [0.2, 1]" in cut.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "1"], "leave --epsilon out"),
        (["--require", "accuracy>=0"], "leave --radius or --require out"),
        (["--require", "stability>=0.5"], "leave --radius or --require out"),
        (["--format", "silva"], "radii are written as text, json, jsonl, csv, not silva"),
        (["--shard", "1/2", "--format", "csv"], "--shard writes jsonl or json for `merge` to read, not csv"),
    ],
)
def test_what_does_not_go_with_radii(tree: str, rows: str, options: list[str], message: str) -> None:
    assert message in run("verify", tree, rows, "--radius", *options, code=2).stderr


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_shards_of_radii_are_merged(hard_forest: tuple[str, str], tmp_path: Path, suffix: str) -> None:
    words = ["verify", *hard_forest, "--radius", "--sample-steps", 3]
    expected = run(*words, "--format", "csv").stdout
    assert ",steps\n" in expected
    parts = [tmp_path / f"part-{number}.{suffix}" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        assert f"shard         {number}/2 of 6 rows\n" in run(*words, "--shard", f"{number}/2", "-o", part).stdout
    assert run("merge", *reversed(parts), "--format", "csv").stdout == expected
    assert "most fragile rows" in run("merge", *parts, "-o", tmp_path / "radii.csv").stdout
    assert (tmp_path / "radii.csv").read_text() == expected
    assert "requirements are about verdicts" in run("merge", *parts, "--require", "accuracy>=0", code=2).stderr
    verdicts = tmp_path / "verdicts.jsonl"
    run("verify", *hard_forest, "--epsilon", 0.1, "--sample-steps", 3, "--shard", "2/2", "-o", verdicts)
    found = run("merge", parts[0], verdicts, code=1).stderr
    assert f"{verdicts}: holds another kind of results than {parts[0]}" in found
    assert "1 of 2 shards are missing: 2" in run("merge", parts[0], code=1).stderr


def test_a_curve_over_multiples_of_an_attack(tree: str, rows: str, tmp_path: Path) -> None:
    attack = write(tmp_path, "attack.toml", "[default]\nradius = 0.5\n[columns]\n1 = { immutable = true }\n")
    other = write(tmp_path, "other.toml", "[default]\nradius = 0.25\n")
    radii = read_csv(run("verify", tree, rows, "--radius", "--attack", attack, "--format", "csv").stdout)
    curve = read_csv(run("evaluate", tree, rows, "--curve", "--attack", attack, "--format", "csv").stdout)
    assert [float(line["factor"]) for line in curve] == sorted({float(record["radius"]) for record in radii})
    assert {line["perturbation"] for line in curve} == {f"attack {attack}"}
    document = json.loads(
        run("evaluate", tree, rows, "--curve", "--attack", attack, "--attack", other, "--format", "json").stdout
    )
    assert [each["perturbation"] for each in document["curves"]] == [f"attack {attack}", f"attack {other}"]
    plain = json.loads(run("evaluate", tree, rows, "--curve", "--format", "json").stdout)["curves"][0]
    assert document["curves"][1]["factor"] == pytest.approx([4 * epsilon for epsilon in plain["epsilon"]])


def test_a_curve_fits_single_evaluations(tree: str, rows: str) -> None:
    curve = read_csv(run("evaluate", tree, rows, "--curve", "--format", "csv").stdout)
    assert len(curve) > 3
    for line in curve:
        single = json.loads(run("evaluate", tree, rows, "--epsilon", line["epsilon"], "--format", "json").stdout)
        assert single["evaluations"][0]["stability"] == float(line["stability"])
        assert single["evaluations"][0]["robust_accuracy"] == float(line["robust_accuracy"])
    document = json.loads(run("evaluate", tree, rows, "--curve", "--format", "json").stdout)
    assert document["curves"][0]["epsilon"] == [float(line["epsilon"]) for line in curve]
    table = run("evaluate", tree, tree, rows, "--curve").stdout.splitlines()
    assert table[0].split() == ["model", "quantile", "epsilon", "stability", "robust", "accuracy"]
    assert len(table) == 15


def test_plots(tree: str, rows: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    for suffix, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        first, second = tmp_path / f"1.{suffix}", tmp_path / f"2.{suffix}"
        for target in (first, second):
            run("evaluate", tree, rows, "--curve", "--plot", target)
        assert first.read_bytes().startswith(start)
        assert first.read_bytes() == second.read_bytes()
    constant = write(tmp_path, "constant.silva", CONSTANT)
    run("evaluate", constant, rows, "--curve", "--plot", tmp_path / "flat.png")


def test_plots_without_matplotlib(tree: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("evaluate", tree, rows, "--curve", "--plot", tmp_path / "x.png", code=1)
    assert "pip install 'metasilvae[plot]'" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--curve", "--epsilon", "1"], "--curve covers every epsilon"),
        (["--plot", "x.png"], "add --curve"),
        (["--curve", "--plot", "x.gif"], "ends in .png, .svg, .pdf"),
    ],
)
def test_wrong_usage_of_curves(tree: str, rows: str, options: list[str], message: str) -> None:
    assert message in run("evaluate", tree, rows, *options, code=2).stderr


def test_radii_of_a_forest_fit_the_verdicts(hard_forest: tuple[str, str], tmp_path: Path) -> None:
    target = tmp_path / "nearest.csv"
    run("verify", *hard_forest, "--radius", "-o", tmp_path / "radii.csv", "--counterexamples", target)
    records = read_csv((tmp_path / "radii.csv").read_text())
    for record in records:
        radius = float(record["radius"])
        for epsilon, is_stable in ((radius, True), (math.nextafter(radius, math.inf), False)):
            report = run("verify", *hard_forest, "--epsilon", repr(epsilon), "--format", "csv").stdout
            assert (read_csv(report)[int(record["row"])]["verdict"] in ("ROBUST", "VULNERABLE")) == is_stable
    predictions = run("predict", hard_forest[0], target).stdout.splitlines()
    assert predictions == [witness["#perturbed_prediction"] for witness in read_csv(target.read_text())]
    curve = read_csv(run("evaluate", *hard_forest, "--curve", "--format", "csv").stdout)
    assert [float(line["epsilon"]) for line in curve] == sorted({float(record["radius"]) for record in records})
    assert "of 6 rows are unstable" in run("explain", *hard_forest, "--epsilon", "0.5").stdout


def test_bounds_within_limits(hard_forest: tuple[str, str]) -> None:
    exact = read_csv(run("verify", *hard_forest, "--radius", "--format", "csv").stdout)
    found = read_csv(run("verify", *hard_forest, "--radius", "--sample-steps", "1", "--format", "csv").stdout)
    opened = [record for record in found if record["reason"]]
    assert {record["reason"] for record in opened} == {"steps"}
    for bounds, record in zip(found, exact, strict=True):
        assert float(bounds["radius"]) <= float(record["radius"]) <= float(bounds["at_most"] or bounds["radius"])
    text = run("verify", *hard_forest, "--radius", "--sample-steps", "1").stdout
    assert f"{len(opened)} radii are lower bounds" in text
    table = run("evaluate", *hard_forest, "--curve", "--sample-steps", "1").stdout
    assert f"{len(opened)} radii are lower bounds" in table
