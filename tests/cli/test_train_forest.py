"""``metasilvae train --trees``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import run
from support.training_requests import request

from metasilvae.formats.silva_models import read_model

IRIS = "builtin:iris/train"


def test_a_forest_is_written_and_described(tmp_path: Path) -> None:
    output, log = tmp_path / "forest.silva", tmp_path / "steps.jsonl"
    result = run("train", IRIS, str(output), "--epsilon", "0.1", "--trees", "6", "--no-tune", "--seed", "2",
                 "--test", "builtin:iris/test", "--log", str(log))  # fmt: skip
    model = read_model(str(output))
    assert (model.n_trees, model.is_forest) == (6, True)
    assert f"(forest of 6 trees, {model.n_leaves} leaves" in result.stdout
    figures = [line.split() for line in result.stdout.splitlines()[-2:]]
    for name, _, _, accuracy, stability, robust_accuracy in figures:
        verified = run("evaluate", output, f"builtin:iris/{name.replace('training', 'train')}", "--epsilon", "0.1",
                       "--format", "json")  # fmt: skip
        record = json.loads(verified.stdout)["evaluations"][0]
        expected = [f"{record[each]:.4g}" for each in ("accuracy", "stability", "robust_accuracy")]
        assert [accuracy, stability, robust_accuracy] == expected
    assert "at least" not in result.stdout
    assert [json.loads(line)["phase"] for line in log.read_text().splitlines()] == ["tree"] * 6


def test_figures_that_take_too_long_are_lower_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metasilvae.training.runs.REPORT_SECONDS", 1e-9)
    monkeypatch.setattr("threading.Timer.start", lambda timer: timer.function())
    words = ["--epsilon", "0.4", "--trees", "6", "--no-tune", "--seed", "2"]
    printed = run("train", IRIS, str(tmp_path / "f.silva"), *words).stdout
    assert "stability and robust accuracy are at least as shown: " in printed
    monkeypatch.undo()
    again = run("train", IRIS, str(tmp_path / "g.silva"), *words).stdout
    assert "at least" not in again
    bounds, exact = (float(text.splitlines()[-1].split()[4]) for text in (printed, again))
    assert bounds <= exact
    assert (tmp_path / "f.silva").read_bytes() == (tmp_path / "g.silva").read_bytes()


@pytest.mark.parametrize("jobs", [2, 3])
def test_jobs_do_not_change_the_file(jobs: int, tmp_path: Path) -> None:
    for name, number in (("one", 1), ("many", jobs)):
        assert (
            run("train", IRIS, str(tmp_path / name), "--epsilon", "0.1", "--trees", "5", "--jobs", number).exit_code
            == 0
        )
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


def test_seeds_give_a_study_of_forests(tmp_path: Path) -> None:
    result = run("train", IRIS, str(tmp_path / "f"), "--epsilon", "0.1", "--trees", "3", "--no-tune",
                 "--seeds", "1..3")  # fmt: skip
    assert "3 seeds" in result.stdout
    assert "at least as shown: only what votes prove at once is counted here\n" in result.stdout
    assert read_model(str(tmp_path / "f")).n_trees == 3


def test_options_reach_the_trees() -> None:
    asked = request("--epsilon", "0.1", "--trees", "9", "--preset", "paper", "--row-sample", "0.5",
                    "--allowed-features", "uniform", "3", "--max-iteration", "7", "--seed", "4")  # fmt: skip
    options = asked.options
    assert (options.n_trees, options.row_sample, options.method) == (9, 0.5, "independent")
    assert (options.tree.allowed_features, options.tree.generations, options.tree.seed) == (3, 7, 4)
    assert request("--epsilon", "0.1", "--trees", "9").options.tree.tune
    assert not request("--epsilon", "0.1", "--trees", "9", "--leaf-penalty", "2").options.tree.tune


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row-sample", "0.5"], "--row-sample is for ensembles"),
        (["--forest-method", "independent"], "--forest-method is for forests"),
        (["--trees", "3", "--population-generator", "from-forest", "x"], "--trees grows a new forest"),
        (["--trees", "0"], "0 is not in the range"),
        (["--trees", "3", "--row-sample", "0"], "0.0 is not in the range"),
    ],
)
def test_contradictions_are_wrong_usage(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("train", IRIS, str(tmp_path / "f"), "--epsilon", "0.1", *arguments, code=2)
    assert message in result.stderr


def test_shards_make_the_trees_of_the_whole_forest(tmp_path: Path) -> None:
    common = ("--epsilon", "0.1", "--trees", "7", "--forest-method", "independent", "--no-tune")
    run("train", IRIS, tmp_path / "whole", *common)
    for number in (1, 2, 3):
        run("train", IRIS, tmp_path / f"part{number}", *common, "--shard", f"{number}/3")
    run("assemble", tmp_path / "joined", *(tmp_path / f"part{number}" for number in (1, 2, 3)))
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_shard_divides_trees_or_seeds(tmp_path: Path) -> None:
    common = ("train", IRIS, tmp_path / "f", "--epsilon", "0.1", "--shard", "1/2")
    assert "give several --seeds, or the number of --trees of a forest" in run(*common, code=2).stderr
    assert "leave out --seeds or --trees" in run(*common, "--trees", 4, "--seeds", "1..4", code=2).stderr
