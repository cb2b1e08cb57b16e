"""``--norm`` and ``--target`` on the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from support.command import run, write

import metasilvae
from metasilvae.perturbations.norms import NormBall

TREE, DATA = "builtin:iris/tree.silva", "builtin:iris/test"


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("norm", ["l1", "l2", "l0"])
def test_commands_agree_with_each_other(norm: str, tmp_path: Path) -> None:
    epsilon = "1" if norm == "l0" else "0.4"
    size = float(epsilon)
    verdicts = table(run("verify", TREE, DATA, "--norm", norm, "--epsilon", epsilon, "--format", "csv").stdout)
    radii = table(run("verify", TREE, DATA, "--norm", norm, "--radius", "--format", "csv").stdout)
    stable = [row["verdict"] in ("ROBUST", "VULNERABLE") for row in verdicts]
    assert stable == [float(row["radius"]) >= size for row in radii]
    evaluated = json.loads(run("evaluate", TREE, DATA, "--norm", norm, "--epsilon", epsilon, "--format", "json").stdout)
    assert evaluated["evaluations"][0]["stability"] == pytest.approx(np.mean(stable))
    curve = table(run("evaluate", TREE, DATA, "--norm", norm, "--curve", "--format", "csv").stdout)
    at = [row for row in curve if float(row["epsilon"]) >= size]
    assert (float(at[0]["stability"]) if at else 0.0) == pytest.approx(np.mean(stable))
    explained = json.loads(run("explain", TREE, DATA, "--norm", norm, "--epsilon", epsilon, "--format", "json").stdout)
    assert len(explained["rows"]) == stable.count(False)
    page = tmp_path / "page.html"
    run("report", TREE, DATA, "--norm", norm, "--epsilon", epsilon, "-o", str(page))
    text = page.read_text()
    assert f"{norm} {epsilon}" in text
    assert "ceiling" not in text


def test_linf_is_the_default() -> None:
    plain = run("verify", TREE, DATA, "--epsilon", "0.2", "--format", "csv").stdout
    assert run("verify", TREE, DATA, "--epsilon", "0.2", "--norm", "linf", "--format", "csv").stdout == plain


def test_parts_are_merged(tmp_path: Path) -> None:
    whole = run("verify", TREE, DATA, "--norm", "l2", "--radius", "--format", "csv").stdout
    parts = [str(tmp_path / f"{number}.jsonl") for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        run("verify", TREE, DATA, "--norm", "l2", "--radius", "--shard", f"{number}/2", "-o", part)
    assert run("merge", *parts, "--format", "csv").stdout == whole
    assert "l2, any distance" in run("merge", *parts, "--format", "text").stdout
    other = str(tmp_path / "other.jsonl")
    run("verify", TREE, DATA, "--norm", "l1", "--radius", "--shard", "2/2", "-o", other)
    assert run("merge", parts[0], other, code=1).stderr


def test_an_attack_file_limits_what_may_change(tmp_path: Path) -> None:
    attack = tmp_path / "attack.toml"
    attack.write_text('[columns]\n"petal_*" = { radius = inf, cost = 2 }\n')
    free = table(run("verify", TREE, DATA, "--norm", "l1", "--radius", "--format", "csv").stdout)
    dear = table(
        run("verify", TREE, DATA, "--norm", "l1", "--radius", "--attack", str(attack), "--format", "csv").stdout
    )
    # The tree tests petals only.
    for one, other in zip(free, dear, strict=True):
        assert float(other["radius"]) == pytest.approx(2 * float(one["radius"]))
    attack.write_text("[columns]\nsepal_width = { radius = inf }\n")
    fixed = run("verify", TREE, DATA, "--norm", "l2", "--epsilon", "9", "--attack", str(attack), "--format", "json")
    assert json.loads(fixed.stdout)["stability"] == 1.0


@pytest.mark.parametrize("norm", ["l1", "l2", "l0"])
def test_weights_divide_costs(norm: str, tmp_path: Path) -> None:
    weights, attack = tmp_path / "weights.txt", tmp_path / "attack.toml"
    weights.write_text("0, 1, 0.5, 0.25")
    rules = ["sepal_length = { immutable = true }", "petal_length = { cost = 2 }", "petal_width = { cost = 4 }"]
    attack.write_text("[default]\nradius = inf\n[columns]\n" + "\n".join(rules))
    words = ["verify", TREE, DATA, "--norm", norm, "--radius", "--format", "csv"]
    by_weights = run(*words, "--feature-weights", str(weights)).stdout
    assert by_weights == run(*words, "--attack", str(attack)).stdout
    assert by_weights != run(*words).stdout
    weights.write_text("1 1 1 1e-320")
    assert "so that its change costs inf" in run(*words, "--feature-weights", str(weights), code=1).stderr
    weights.write_text("1 1 2 1")
    refused = run(*words, "--feature-weights", str(weights), code=1 if norm == "l0" else 0).stderr
    assert ("the weight of petal_length is 2" in refused) == (norm == "l0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--norm", "l1"], "--norm l1 needs --epsilon E, the limit of the sum of all changes"),
        (["--norm", "l1", "--epsilon", "x"], "--epsilon 'x': is not a number"),
        (["--norm", "l1", "--epsilon", "inf"], "expected a finite one, 0 or more"),
        (["--norm", "l1", "--epsilon", "-1"], "must not be negative"),
        (["--norm", "l0", "--epsilon", "0.5"], "a whole number"),
        (["--norm", "l2", "--epsilon", "1", "--perturbation", "l_inf", "1"], "leave --perturbation out"),
        (["--target", "x", "--epsilon", "1"], "its labels are setosa, versicolor, virginica"),
        (["--target", "setosa", "--epsilon", "1", "--require", "accuracy>=0"], "leave --target or --require out"),
        (
            ["--target", "setosa", "--epsilon", "1", "--format", "silva"],
            "targets are written as text, json, jsonl, csv",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], message: str) -> None:
    failed = run("verify", TREE, DATA, *options, code=None)
    assert failed.exit_code in (1, 2)
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_other_commands_refuse_norms_without_a_limit() -> None:
    for command in ("explain", "report", "evaluate"):
        more = ["-o", "page.html"] if command == "report" else []
        assert "--norm l1 needs --epsilon" in run(command, TREE, DATA, "--norm", "l1", *more, code=2).stderr
    options = ["--norm", "l1", "--epsilon", "1", "--ceiling"]
    assert "leave --ceiling out" in run("evaluate", TREE, DATA, *options, code=2).stderr


@pytest.mark.parametrize("norm", ["linf", "l1", "l2", "l0"])
def test_targets_are_reached_by_the_changes_that_are_written(norm: str, tmp_path: Path) -> None:
    changed = tmp_path / "changed.csv"
    report = run(
        "verify", TREE, DATA, "--target", "virginica", "--norm", norm, "--radius", "--format", "json",
        "--counterexamples", str(changed),
    )  # fmt: skip
    document = json.loads(report.stdout)
    counts = document["counts"]
    assert counts["predicted"] + counts["reachable"] == 30
    predicted = run("predict", TREE, str(changed)).stdout.split()
    assert predicted == ["virginica"] * counts["reachable"]
    for row in document["rows"]:
        if row["status"] == "REACHABLE":
            sizes = [abs(new - old) for old, new in row["changes"].values()]
            size = {"linf": max(sizes), "l1": sum(sizes), "l2": np.hypot(*[*sizes, 0.0][:2]), "l0": len(sizes)}[norm]
            assert row["distance"] == pytest.approx(size)


@pytest.mark.parametrize("options", [["--norm", "l1", "--radius"], ["--epsilon", "1"]])
@pytest.mark.parametrize("has_labels", [True, False])
def test_targets_are_merged(options: list[str], has_labels: bool, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    model, training = str(tmp_path / "model.silva"), tmp_path / "training.csv"
    rows = [[f"c{number}", "yes" if number % 5 > 1 else "no", str(number % 5), "ab"[number % 2]] for number in range(9)]
    rows.insert(0, ["customer", "decision", "income", "town"])
    training.write_text("".join(",".join(row) + "\n" for row in rows))
    data.write_text("".join(",".join(row if has_labels else [row[0], *row[2:]]) + "\n" for row in rows))
    named = ["--id", "customer", "--label-column"]
    run("train", str(training), model, *named, "decision", "--preset", "cart", "--epsilon", "0.1", "--no-manifest")
    words = [model, str(data), *named, "decision" if has_labels else "none", "--target", "yes", *options]
    whole = {kind: run("verify", *words, "--format", kind).stdout for kind in ("csv", "text")}
    assert ("label" in whole["csv"]) == has_labels
    assert "REACHABLE" in whole["csv"]
    assert "c1" in whole["csv"]
    parts = [str(tmp_path / f"{number}.jsonl") for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        assert "shard " in run("verify", *words, "--shard", f"{number}/3", "-o", part).stdout
    assert run("merge", *parts[::-1], "--format", "csv").stdout == whole["csv"]
    merged = run("merge", *parts, "--format", "text").stdout
    assert merged.splitlines()[:-1] == whole["text"].splitlines()[:-1]
    document = json.loads(run("merge", *parts, "--format", "json").stdout)
    assert document["rows"] == json.loads(run("verify", *words, "--format", "json").stdout)["rows"]
    refused = run("merge", *parts, "--require", "accuracy>=0", code=2).stderr
    assert "these shards hold none; leave --require out" in refused
    other = str(tmp_path / "other.jsonl")
    words[words.index("yes")] = "no"
    run("verify", *words, "--shard", "2/3", "-o", other)
    assert "another target than" in run("merge", parts[0], other, parts[2], code=1).stderr
    run("verify", TREE, DATA, "--radius", "--shard", "2/3", "-o", other)
    assert "another kind of results" in run("merge", parts[0], other, parts[2], code=1).stderr


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "MAYBE"}, {"status": "UNREACHABLE"}, {"changes": []}, {"changes": {"petal_width": [1]}},
        {"changes": {"petal_width": [[], 2]}}, {"distance": -1.0}, {"distance": "far"}, {"at_least": 99.0},
        {"customer": 3}, {"label": 3}, {"target": "setosa"},
    ],
)  # fmt: skip
def test_damaged_parts_are_refused(broken: dict[str, object], tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    words = [TREE, DATA, "--target", "virginica", "--norm", "l1", "--radius", "--shard", "1/1"]
    run("verify", *words, "-o", str(part))
    rows = [json.loads(line) for line in part.read_text().splitlines()]
    place = next(place for place, row in enumerate(rows) if row.get("status") == "REACHABLE")
    if "target" in broken:
        rows[-1]["summary"]["target"] = 5
    else:
        rows[place] |= broken
    part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("merge", str(part), code=1)


def test_targets_within_a_perturbation() -> None:
    text = run("verify", TREE, DATA, "--target", "versicolor", "--epsilon", "0.3").stdout
    assert "target        versicolor" in text
    rows = table(run("verify", TREE, DATA, "--target", "versicolor", "--epsilon", "0.3", "--format", "csv").stdout)
    radii = table(run("verify", TREE, DATA, "--target", "versicolor", "--radius", "--format", "csv").stdout)
    for one, other in zip(rows, radii, strict=True):
        if one["status"] != "PREDICTED":
            assert (one["status"] == "REACHABLE") == (float(other["distance"]) <= 0.3)


def test_rows_without_labels_have_targets(tmp_path: Path) -> None:
    data, changed = tmp_path / "data.csv", tmp_path / "changed.csv"
    data.write_text("sepal_length,sepal_width,petal_length,petal_width\n5.1,3.5,1.4,0.2\n")
    report = run(
        "verify", TREE, str(data), "--label-column", "none", "--target", "virginica", "--norm", "l1", "--radius",
        "--counterexamples", str(changed), "--format", "json",
    )  # fmt: skip
    (row,) = json.loads(report.stdout)["rows"]
    assert row["status"] == "REACHABLE"
    assert "label" not in row
    assert run("predict", TREE, str(changed), "--label-column", "none").stdout == "virginica\n"


def test_the_library_does_the_same() -> None:
    model, dataset = metasilvae.read_model(TREE), metasilvae.read_dataset(DATA)
    radii = metasilvae.find_radii(model, dataset, NormBall("l1"))
    outcome = metasilvae.verify(model, dataset, metasilvae.NormBall("l1", 0.3))
    assert ((radii.lower >= 0.3) == (outcome.stability == 1)).all()
    results = metasilvae.find_targets(model, dataset, "setosa", NormBall("l2"), nearest=True)
    changes = list(metasilvae.find_counterfactuals(model, dataset, "setosa", NormBall("l2")))
    assert len(changes) == results.counts[1]
    assert results.distances is not None
    for change in changes:
        distance = np.linalg.norm(change.point - dataset.X[change.row])
        assert distance == pytest.approx(results.distances[change.row])
    with pytest.raises(metasilvae.MetasilvaeError, match="needs a perturbation"):
        metasilvae.find_targets(model, dataset, "setosa")
    trained = metasilvae.train(dataset, NormBall("l1", 0.3), preset="fast")
    assert metasilvae.verify(trained, dataset, NormBall("l1", 0.3)).counts.robust > outcome.counts.robust


def test_training_takes_the_norm(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("plain.silva", "linf.silva")]
    for file, options in zip(files, ([], ["--norm", "linf"]), strict=True):
        run("train", DATA, str(file), "--epsilon", "0.2", "--preset", "fast", *options)
    assert files[0].read_bytes() == files[1].read_bytes()
    words = ["train", DATA, str(tmp_path / "model.silva"), "--norm", "l1"]
    assert "--norm l1 needs --epsilon E, the limit of the sum of all changes" in run(*words, code=2).stderr
    wrong = {("--perturbation", "l_inf 0.1"): "leave --perturbation out", ("--epsilon", "x"): "is not a number"}
    for option, message in wrong.items():
        assert message in run(*words, "--epsilon", "0.1", *option, code=2).stderr
    linear = ["--fitness", "linear 0.1 1 0 0 0 0 0 0 0 0"]
    assert "leave --norm or --fitness out" in run(*words, *linear, code=2).stderr
    assert "in the norm l0 it is a number of features" in run(*words[:-1], "l0", "--epsilon", "0.5", code=2).stderr


@pytest.mark.parametrize(("norm", "epsilon"), [("l1", "0.5"), ("l2", "0.4"), ("l0", "1")])
@pytest.mark.parametrize("kind", [[], ["--trees", "3"]])
def test_what_is_trained_in_a_norm_is_verified(norm: str, epsilon: str, kind: list[str], tmp_path: Path) -> None:
    files = [tmp_path / f"{jobs}.silva" for jobs in (1, 2)]
    for jobs, file in enumerate(files, start=1):
        words = ["train", DATA, str(file), "--norm", norm, "--epsilon", epsilon, *kind, "--jobs", str(jobs)]
        report = run(*words, "--preset", "fast", "--seed", "4").stdout
        assert f"perturbation  {norm} {epsilon}\n" in report
    assert files[0].read_bytes() == files[1].read_bytes()
    verdicts = run("verify", str(files[0]), DATA, "--norm", norm, "--epsilon", epsilon, "--format", "csv").stdout
    metrics = next(line.split() for line in report.splitlines() if line.startswith("training  ") and "seed" not in line)
    n_stable = verdicts.count(",ROBUST") + verdicts.count(",VULNERABLE")
    assert float(metrics[4]) == pytest.approx(n_stable / int(metrics[1]), abs=1e-4)


def test_training_in_a_norm_keeps_to_an_attack_file(tmp_path: Path) -> None:
    attack = tmp_path / "attack.toml"
    attack.write_text(
        "[default]\nradius = inf\n[columns]\nc = { integer = true, cost = 2 }\nd = { immutable = true }\n"
        '[[one-hot]]\ncolumns = ["a", "b"]\n'
    )
    rng = np.random.default_rng(3)
    a, c, d = rng.integers(0, 2, 80), rng.integers(0, 6, 80), rng.random(80)
    labels = np.where((c > 2) ^ ((a == 1) & (d > 0.5)), "x", "y")
    lines = [f"{row[0]},{row[1]},{1 - row[1]},{row[2]},{row[3]:.3f}" for row in zip(labels, a, c, d, strict=True)]
    data, tree = tmp_path / "data.csv", tmp_path / "tree.silva"
    data.write_text("label,a,b,c,d\n" + "\n".join(lines) + "\n")
    threat = ["--norm", "l1", "--epsilon", "1.5", "--attack", str(attack)]
    report = run("train", str(data), str(tree), *threat, "--preset", "fast").stdout
    verdicts = run("verify", str(tree), str(data), *threat, "--format", "csv").stdout
    n_robust = verdicts.count(",ROBUST")
    assert n_robust > 0
    assert f"{n_robust / 80:.4g}" in report.splitlines()[-1]


@pytest.mark.parametrize("norm", ["l1", "l2", "l0"])
def test_boosted_models_are_trained_for_the_norm(norm: str, tmp_path: Path) -> None:
    model, epsilon = str(tmp_path / "model.silva"), "1" if norm == "l0" else "0.3"
    threat = ["--norm", norm, "--epsilon", epsilon]
    shown = run("train", "builtin:iris/train", model, *threat, "--boost", "4", "--test", DATA).stdout
    assert f"perturbation  {norm} {epsilon}\n" in shown
    last = shown.splitlines()[-1].split()
    evaluated = json.loads(run("evaluate", model, DATA, *threat, "--format", "json").stdout)["evaluations"][0]
    assert [float(word) for word in last[3:]] == pytest.approx(
        [evaluated[name] for name in ("accuracy", "stability", "robust_accuracy")], rel=1e-3
    )
    manifest = json.loads((tmp_path / "model.silva.manifest.json").read_text())
    assert manifest["perturbation"]["description"] == f"{norm} {epsilon}"
    assert manifest["runs"][0]["tuning"]["chosen"] in [
        {name: entry[name] for name in manifest["runs"][0]["tuning"]["chosen"]}
        for entry in manifest["runs"][0]["tuning"]["finalists"]
    ]
    trained = metasilvae.read_model(model).description.provenance
    assert trained is not None
    assert trained["perturbation"]["description"] == f"{norm} {epsilon}"


def test_training_for_a_norm_within_an_attack(tmp_path: Path) -> None:
    rules = tmp_path / "changes.toml"
    rules.write_text('[default]\nradius = inf\n[columns]\n"petal_*" = { radius = 0, cost = 2 }\n')
    words = ["--norm", "l1", "--epsilon", "0.3", "--attack", str(rules)]
    model = str(tmp_path / "model.silva")
    shown = run("train", "builtin:iris/train", model, *words, "--boost", "4", "--no-tune").stdout
    assert f"perturbation  l1 0.3 within attack {rules}\n" in shown
    # Petals do not change, and tell all rows apart.
    assert float(shown.splitlines()[-1].split()[-1]) > 0.9
    trained = metasilvae.read_model(model).description.provenance
    assert trained is not None
    assert trained["perturbation"]["description"] == "l1 0.3 within attack"
    checkpoint = str(tmp_path / "run.checkpoint")
    run("train", "builtin:iris/train", model, *words, "--boost", "4", "--no-tune", "--checkpoint", checkpoint)
    other = ["--norm", "l2", *words[2:], "--boost", "4", "--no-tune", "--resume", checkpoint]
    assert (
        "was written with perturbation l1 0.3 within"
        in run("train", "builtin:iris/train", model, *other, code=1).stderr
    )


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("kind", [[], ["--trees", "2"], ["--boost", "2"]])
def test_epsilon_may_be_as_large_as_numbers_are(norm: str, kind: list[str], tmp_path: Path) -> None:
    # Its square, and twice its size, are out of range.
    words = ["train", DATA, str(tmp_path / "model.silva"), "--norm", norm, "--epsilon", "1e308", *kind]
    found = run(*words, "--time-limit", "20")
    assert found.stderr == ""
    assert f"perturbation  {norm} 1e+308\n" in found.stdout


def test_what_boosting_refuses_in_a_norm(tmp_path: Path) -> None:
    words = ["train", DATA, str(tmp_path / "model.silva"), "--norm", "l1", "--epsilon", "0.3", "--boost", "3"]
    given = {"--min-samples-leaf": "3", "--refits": "3", "--refit-penalty": "3", "--first-tree": "searched"}
    for option, value in given.items():
        message = run(*words, option, value, code=2).stderr
        assert f"leave {option} out" in message
        assert message.count("\n") == 1


def test_infinite_radii_have_no_multiples(tmp_path: Path) -> None:
    attack = tmp_path / "attack.toml"
    attack.write_text("[default]\nradius = inf\n")
    words = ["verify", TREE, DATA, "--target", "setosa", "--radius", "--attack", str(attack)]
    assert "--norm l1, l2 or l0 measures them" in run(*words).stderr
    assert run(*words, "--norm", "l1").stderr == ""


def test_multiples_of_infinite_radii_are_no_distances(tmp_path: Path) -> None:
    attack = write(tmp_path, "endless.toml", "[columns]\n'*' = { radius = inf }\n")
    found = run("verify", TREE, DATA, "--target", "virginica", "--radius", "--attack", attack)
    assert "infinite radii have no multiples" in found.stderr
    assert " > 0  " in found.stdout
    assert "e-324" not in found.stdout
