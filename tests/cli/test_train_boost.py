"""``metasilvae train --boost``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import run
from support.training_requests import request

from metasilvae.formats.silva_models import read_model
from metasilvae.model import LeafKind

IRIS = "builtin:iris/train"
QUICK = ("--epsilon", "0.1", "--boost", "5", "--no-tune")


def test_a_boosted_model_is_written_and_described_exactly(tmp_path: Path) -> None:
    output, log = tmp_path / "boosted.silva", tmp_path / "steps.jsonl"
    result = run("train", IRIS, output, "--epsilon", "0.1", "--boost", "6", "--no-tune", "--seed", "2",
                 "--test", "builtin:iris/test", "--log", log)  # fmt: skip
    model = read_model(str(output))
    assert (model.n_trees, model.is_forest, model.leaf_kind) == (18, True, LeafKind.SCORES)
    assert f"(forest of 18 trees, {model.n_leaves} leaves" in result.stdout
    assert "completed" in result.stdout
    for name, _, _, accuracy, stability, robust_accuracy in (line.split() for line in result.stdout.splitlines()[-2:]):
        verified = run("evaluate", output, f"builtin:iris/{name.replace('training', 'train')}", "--epsilon", "0.1",
                       "--format", "json")  # fmt: skip
        record = json.loads(verified.stdout)["evaluations"][0]
        expected = [f"{record[each]:.4g}" for each in ("accuracy", "stability", "robust_accuracy")]
        assert [accuracy, stability, robust_accuracy] == expected
    assert [json.loads(line)["phase"] for line in log.read_text().splitlines()] == ["round"] * 6
    manifest = json.loads((tmp_path / "boosted.silva.manifest.json").read_text())
    assert manifest["options"]["boost"] == 6
    assert manifest["options"]["learning-rate"] == 0.1
    assert "population-max-size" not in manifest["options"]


@pytest.mark.parametrize("data", [IRIS, "builtin:circle/train"])
def test_jobs_do_not_change_the_file(data: str, tmp_path: Path) -> None:
    for jobs in (1, 3):
        run("train", data, tmp_path / f"{jobs}.silva", "--epsilon", "0.1", "--boost", "5", "--jobs", jobs)
    assert (tmp_path / "1.silva").read_bytes() == (tmp_path / "3.silva").read_bytes()


def test_a_checkpoint_resumes_to_the_same_file(tmp_path: Path) -> None:
    run("train", IRIS, tmp_path / "whole", *QUICK)
    run("train", IRIS, tmp_path / "cut", *QUICK, "--checkpoint", tmp_path / "c", "--every", 1, "--time-limit", "1e-9")
    run("train", IRIS, tmp_path / "again", *QUICK, "--checkpoint", tmp_path / "c", "--resume", "auto")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes() != (tmp_path / "cut").read_bytes()
    other = run("train", IRIS, tmp_path / "again", *QUICK, "--learning-rate", "0.3", "--resume", tmp_path / "c", code=1)
    assert "with --learning-rate 0.1, this run has 0.3" in other.stderr


def test_shifted_images(tmp_path: Path) -> None:
    # The four measurements stand for an image of two rows of two pixels.
    shifted = [*QUICK, "--image-shifts", "2x2"]
    run("train", IRIS, tmp_path / "plain", *QUICK)
    for jobs in (1, 3):
        run("train", IRIS, tmp_path / f"{jobs}", *shifted, "--jobs", jobs)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes() != (tmp_path / "plain").read_bytes()
    manifest = json.loads((tmp_path / "1.manifest.json").read_text())
    assert manifest["options"]["image-shifts"] == "2x2"
    saving = ("--checkpoint", tmp_path / "c", "--every", 1)
    run("train", IRIS, tmp_path / "cut", *shifted, *saving, "--time-limit", "1e-9")
    run("train", IRIS, tmp_path / "again", *shifted, "--checkpoint", tmp_path / "c", "--resume", "auto")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "1").read_bytes()
    wrong = run("train", IRIS, tmp_path / "f", *QUICK, "--image-shifts", "3x3", code=1)
    assert "has 4 features, and an image of 3x3 has 9; give height and width of the images" in wrong.stderr
    other = run("train", IRIS, tmp_path / "f", *shifted, "--norm", "l1", code=2)
    assert "trees for a norm learn from no shifted images; leave --image-shifts out" in other.stderr
    assert not (tmp_path / "f").exists()


def test_a_searched_first_tree(tmp_path: Path) -> None:
    searched = [*QUICK, "--first-tree", "searched"]
    run("train", IRIS, tmp_path / "plain", *QUICK)
    for jobs in (1, 3):
        run("train", IRIS, tmp_path / f"{jobs}", *searched, "--jobs", jobs)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes() != (tmp_path / "plain").read_bytes()
    saving = ("--checkpoint", tmp_path / "c", "--every", 1)
    run("train", IRIS, tmp_path / "cut", *searched, *saving, "--time-limit", "1e-9")
    run("train", IRIS, tmp_path / "again", *searched, "--checkpoint", tmp_path / "c", "--resume", "auto")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "1").read_bytes()
    wrong = run("train", IRIS, tmp_path / "f", *QUICK, "--first-tree", "best", code=2)
    assert "'best' is not one of 'grown', 'searched'" in wrong.stderr


def test_several_seeds_keep_the_best(tmp_path: Path) -> None:
    result = run("train", IRIS, tmp_path / "best", *QUICK, "--feature-sample", "0.5", "--seeds", "1..3")
    assert "3 seeds" in result.stdout
    assert read_model(str(tmp_path / "best")).n_trees == 15


def test_options_reach_the_trees() -> None:
    asked = request(*QUICK, "--learning-rate", "0.3", "--row-sample", "0.5", "--feature-sample", "0.25",
                    "--thresholds", "9", "--score-penalty", "2", "--max-depth", "3", "--tolerance", "1",
                    "--refits", "4", "--refit-penalty", "0", "--first-tree", "searched", "--seed", "4",
                    "--weight", "accuracy=0.4", "--weight", "stability=0.6")  # fmt: skip
    options = asked.options
    assert (options.n_rounds, options.learning_rate, options.row_sample, options.feature_sample) == (5, 0.3, 0.5, 0.25)
    assert (options.thresholds, options.score_penalty, options.tolerance, options.refits) == (9, 2, 1, 4)
    assert options.refit_penalty == 0
    assert (options.tree.max_depth, options.tree.seed, options.tree.tune) == (3, 4, False)
    assert options.first_tree == "searched"
    assert options.loss_weights[1] >= 0.6
    assert request("--epsilon", "0.1", "--boost", "9").options.tree.tune


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learning-rate", "0.5"], "--learning-rate is for boosting; give the number of rounds with --boost"),
        (["--boost", "3", "--trees", "3"], "give one of them"),
        (["--boost", "3", "--forest-method", "independent"], "--forest-method is for forests"),
        (["--trees", "3", "--tolerance", "1"], "--tolerance is for boosting"),
        (["--boost", "3", "--population-generator", "greedy"], "--population-generator is for the search for trees"),
        (["--boost", "3", "--population-generator", "from-forest", "x"], "--population-generator is for the search"),
        (["--boost", "3", "--max-leaves", "3"], "--max-leaves is for the search for trees"),
        (["--boost", "3", "--allowed-features", "uniform", "2"], "--allowed-features is for the search for trees"),
        (["--boost", "3", "--preset", "paper"], "is for single trees and forests; leave out --preset or --boost"),
        (["--boost", "3", "--shard", "1/2"], "depends on those before it; give several --seeds, or leave out --shard"),
        (["--boost", "3", "--pareto", "x"], "leave out --pareto or --boost"),
        (["--boost", "3", "--tune", "--max-depth", "2"], "--tune and --max-depth exclude each other"),
        (["--trees", "3", "--refits", "1"], "--refits is for boosting"),
        (["--trees", "3", "--refit-penalty", "1"], "--refit-penalty is for boosting"),
        (["--boost", "3", "--image-shifts", "28"], "'28' is no size of images; give height and width, such as 28x28"),
        (["--image-shifts", "2x2"], "--image-shifts is for boosting; give the number of rounds with --boost"),
        (["--boost", "0"], "0 is not in the range"),
    ],
)
def test_contradictions_are_wrong_usage(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("train", IRIS, tmp_path / "f", "--epsilon", "0.1", *arguments, code=2)
    assert message in result.stderr


def test_shards_divide_the_seeds_of_boosted_models(tmp_path: Path) -> None:
    common = ("--epsilon", "0.1", "--boost", "3", "--no-tune")
    for seed in (1, 2, 3, 4):
        run("train", IRIS, tmp_path / f"seed{seed}", *common, "--seed", seed)
    for number in (1, 2):
        found = run("train", IRIS, tmp_path / f"part{number}", *common, "--seeds", "1..4", "--shard", f"{number}/2")
        assert "kept all 2 models, whose scores add up, in" in found.stdout
        assert json.loads((tmp_path / f"part{number}.manifest.json").read_text())
    run("assemble", tmp_path / "joined", tmp_path / "part1", tmp_path / "part2")
    run("assemble", tmp_path / "whole", *(tmp_path / f"seed{seed}" for seed in (1, 2, 3, 4)))
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "whole").read_bytes()
    found = run("verify", tmp_path / "joined", IRIS, "--epsilon", "0.1", "--format", "text")
    assert "voting softargmax" in found.stdout


def test_tuning_that_the_time_limit_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metasilvae.training.boosting_tuning.TUNING_FRACTION", 1e-9)
    found = run("train", IRIS, tmp_path / "f", "--epsilon", "0.1", "--boost", "3", "--time-limit", "1e6")
    assert "not finished within 30 % of the time limit, nothing was compared" in found.stdout
    assert '"tuning"' not in (tmp_path / "f").read_text(), "the usual settings were not chosen"
    run("train", IRIS, tmp_path / "g", "--epsilon", "0.1", "--boost", "3")
    assert '"tuning"' in (tmp_path / "g").read_text()
