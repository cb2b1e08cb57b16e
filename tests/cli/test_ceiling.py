"""What no model can exceed: `data check --epsilon` and `evaluate --ceiling`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from support.command import run, write

from metasilvae.verification.ceiling import find_ceiling


class TestCeiling:
    """What no model can exceed, under each kind of perturbation."""

    ROWS = "label,u,v\na,0,0\nb,0.1,0\na,0.5,0\nb,0.9,0\nb,0.9,0\na,0.9,0\n"

    @pytest.fixture
    def data(self, tmp_path: Path) -> str:
        return write(tmp_path, "data.csv", self.ROWS)

    def test_text(self, data: str) -> None:
        shown = run("data", "check", data, "--epsilon", "0.05").stdout
        assert (
            "ceiling under l_inf 0.05: no model can exceed on these rows\n"
            "accuracy          83.33 %, 5 of 6 rows\n"
            "robust accuracy   66.67 %, 4 of 6 rows; some model reaches it\n"
            "conflicts        3 pairs of rows with different labels and a common perturbation, 5 rows in all\n"
        ) in shown
        assert "ceiling" not in run("data", "check", data).stdout

    @pytest.mark.parametrize(
        ("options", "robust"),
        [
            (["--epsilon", "0"], 5),
            (["--perturbation", "l_inf", "0.2"], 3),
            (["--perturbation", "l_inf-clip-all", "0.05", "0", "1"], 4),
            (["--perturbation", "from-file", "BOXES"], 3),
            (["--attack", "ATTACK"], 3),
        ],
    )
    def test_json(self, data: str, tmp_path: Path, options: list[str], robust: int) -> None:
        files = {
            "BOXES": write(tmp_path, "boxes", "[0;1] [0;0]\n" * 6),
            "ATTACK": write(tmp_path, "attack.toml", "[columns]\nu = { radius = inf }\n"),
        }
        words = [files.get(word, word) for word in options]
        found = json.loads(run("data", "check", data, *words, "--format", "json").stdout)["ceiling"]
        assert (found["accurate_rows"], found["robust_rows"]) == (5, robust)
        assert found["robust_accuracy"] == robust / 6
        assert found["is_exact"]
        assert found["limit"] is None
        described = {"--attack": f"attack {files['ATTACK']}", "--epsilon": "l_inf 0"}
        assert found["perturbation"] == described.get(words[0], " ".join(words[1:]))

    def test_a_limit_is_reported(self, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("metasilvae.cli.data.find_ceiling", partial(find_ceiling, most_conflicts=1))
        shown = run("data", "check", data, "--epsilon", "0.05").stdout
        assert "conflicts        not all were considered, because there are more than 1 conflicts\n" in shown
        assert "4 of 6 rows; some model reaches 3\n" in shown

    def test_a_broken_file_has_none(self, tmp_path: Path) -> None:
        broken = write(tmp_path, "data.csv", "a,1\nb,x\n")
        assert "ceiling" not in run("data", "check", broken, "--epsilon", "1", code=1).stdout

    def test_wrong_options(self, data: str) -> None:
        run("data", "check", data, "--epsilon", "1", "--attack", "x.toml", code=2)
        assert "can be used for one of the files only" in run("data", "check", "-", "--attack", "-", code=2).stderr
        assert "must be finite" in run("data", "check", data, "--epsilon", "-1", code=2).stderr


def test_the_ceiling(tree: str, rows: str) -> None:
    """The share that is reached, for each model and perturbation; the numbers are those of `data check`."""
    words = ["evaluate", tree, tree, rows, "--epsilon", "0.1", "--epsilon", "0.3", "--ceiling", "--format", "json"]
    records = json.loads(run(*words).stdout)["evaluations"]
    for record, epsilon in zip(records, ["0.1", "0.3", "0.1", "0.3"], strict=True):
        found = json.loads(run("data", "check", rows, "--epsilon", epsilon, "--format", "json").stdout)["ceiling"]
        assert record["ceiling"] == found["robust_accuracy"]
        assert record["share_of_ceiling"] == record["robust_accuracy"] / found["robust_accuracy"]
        assert record["robust_accuracy"] <= record["ceiling"] < 1
    assert "share of ceiling" not in run("evaluate", tree, rows, "--epsilon", "0.1").stdout
    for options in ([], ["--curve"]):
        assert "--ceiling is for one or more" in run("evaluate", tree, rows, "--ceiling", *options, code=2).stderr
