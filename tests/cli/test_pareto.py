"""``metasilvae train --pareto`` and ``metasilvae pareto``."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from support.command import run, write

from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.output.text.trainings import ProgressBar
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import runs
from metasilvae.training.pareto import measure

IRIS, TEST = "builtin:iris/train", "builtin:iris/test"
SHORT = ["--epsilon", "0.1", "--max-iteration", "4", "--population-max-size", "8", "--population-initial-size", "8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive "trees" of a run."""
    folder = tmp_path_factory.mktemp("pareto")
    run("train", IRIS, folder / "best.silva", *SHORT, "--pareto", folder / "trees")
    return folder


@pytest.fixture
def archive(trained: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(trained / "trees", tmp_path / "trees"))


def read_index(folder: Path) -> dict:
    return json.loads((folder / "index.json").read_text())


def change_index(folder: Path, **changes: object) -> None:
    (folder / "index.json").write_text(json.dumps(read_index(folder) | changes))


def tree_of(rows: int, correct: int, stable: int, robust: int) -> dict[str, object]:
    """An entry of an index."""
    counts = {"rows": rows, "correct": correct, "stable": stable, "robust": robust}
    return {"file": "tree-000.silva", **counts, "leaves": 1, "depth": 0}


def listed(*arguments: object) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run("pareto", *arguments, "--format", "csv").stdout)))


# Training


def test_the_index_tells_what_the_verifier_finds(trained: Path) -> None:
    index = read_index(trained / "trees")
    dataset = read_dataset(IRIS)
    assert (index["data"], index["rows"], index["perturbation"]) == (IRIS, "training rows", "l_inf 0.1")
    assert index["options"]["seed"] == 0
    assert index["options"]["time_limit"] is None
    names = [tree["file"] for tree in index["trees"]]
    assert names == [f"tree-{number:03}.silva" for number in range(len(names))]
    assert sorted(path.name for path in (trained / "trees").iterdir()) == ["index.json", *names]
    assert len(names) >= 3
    for tree in index["trees"]:
        metrics = measure(read_model(str(trained / "trees" / tree["file"])), dataset, Ball(0.1))
        assert [tree[name] for name in ("rows", "correct", "stable", "robust", "leaves", "depth")] == [
            *(120, metrics.correct, metrics.stable, metrics.robust, metrics.leaves, metrics.depth)
        ]
        assert tree["phi"] == pytest.approx(0.9 * tree["accuracy"] + 0.1 * tree["stability"])


def test_the_same_seed_gives_the_same_folder_and_the_same_best_tree(trained: Path, tmp_path: Path) -> None:
    printed = run("train", IRIS, tmp_path / "best.silva", *SHORT, "--pareto", tmp_path / "again", "--jobs", "3").stdout
    for path in (trained / "trees").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    n_trees = len(read_index(trained / "trees")["trees"])
    assert printed.endswith(f"{n_trees} trees that no other one beats were written to {tmp_path / 'again'}\n")
    run("train", IRIS, tmp_path / "plain.silva", *SHORT)
    assert (tmp_path / "plain.silva").read_bytes() == (tmp_path / "best.silva").read_bytes()


def test_held_out_rows_judge(tmp_path: Path) -> None:
    run("train", IRIS, tmp_path / "best.silva", *SHORT, "--validation", "0.25", "--pareto", tmp_path / "trees")
    index = read_index(tmp_path / "trees")
    assert index["rows"] == "held-out rows"
    assert {tree["rows"] for tree in index["trees"]} == {30}
    assert "(30 held-out rows), l_inf 0.1\n" in run("pareto", tmp_path / "trees").stdout


def test_a_tree_in_a_pipe_leaves_standard_output_alone(tmp_path: Path) -> None:
    result = run("train", IRIS, "-", *SHORT, "--pareto", tmp_path / "trees")
    assert result.stdout.startswith("classifier-decision-tree 4 3\n")
    assert "no other one beats" not in result.stdout
    assert "no other one beats" in result.stderr


@pytest.mark.parametrize("options", [["--no-tune"], [], ["--validation", "0.25"]])
def test_an_interrupt_writes_the_archive_so_far(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    steps = []

    def interrupt(self: ProgressBar, progress: object) -> None:
        steps.append(progress)
        if len(steps) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "show", interrupt)
    try:
        result = run("train", IRIS, tmp_path / "best.silva", *SHORT, *options, "--pareto", tmp_path / "trees", code=130)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert "interrupted; the best tree so far was written" in result.stderr
    n_trees = len(read_index(tmp_path / "trees")["trees"])
    # The initial tree is trained on the held-out rows, so they cannot evaluate it.
    assert n_trees == 0 if "--validation" in options else n_trees >= 2
    if not n_trees:
        assert "no tree was evaluated on held-out rows" in result.stdout
        assert "there is no tree in" in run("pareto", tmp_path / "trees", "--by", "phi", code=3).stderr
    listing = run("pareto", tmp_path / "trees").stdout
    assert (f"{n_trees} trees on" if n_trees else "no trees") in listing


def test_an_archive_outlives_an_output_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = runs.write_model

    def fill_the_disk(*arguments: Any, **settings: Any) -> None:
        (tmp_path / "best.silva").mkdir(exist_ok=True)
        usual(*arguments, **settings)

    monkeypatch.setattr(runs, "write_model", fill_the_disk)
    result = run("train", IRIS, tmp_path / "best.silva", *SHORT, "--pareto", tmp_path / "trees", code=1)
    assert "best.silva: is a folder" in result.stderr
    assert read_index(tmp_path / "trees")["trees"]


@pytest.mark.parametrize(
    "other", [["--trees", "3"], ["--seeds", "1..2"], ["--shard", "1/2"], ["--scheduler", "tcp://localhost:1"]]
)
def test_what_an_archive_cannot_be_combined_with(other: list[str], tmp_path: Path) -> None:
    result = run("train", IRIS, tmp_path / "t.silva", *SHORT, "--pareto", tmp_path / "trees", *other, code=2)
    assert f"leave out --pareto or {other[0]}" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_in_use_is_refused_before_training(archive: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in archive.iterdir()}
    result = run("train", IRIS, tmp_path / "t.silva", *SHORT, "--pareto", archive, code=1)
    assert result.stderr == f"error: {archive}: is not empty (index.json); an archive needs a new or an empty folder\n"
    assert {path.name: path.read_bytes() for path in archive.iterdir()} == before
    assert not (tmp_path / "t.silva").exists()


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    file = write(tmp_path, "file", "x")
    assert "is a file" in run("train", IRIS, tmp_path / "t.silva", *SHORT, "--pareto", file, code=1).stderr
    below = run("train", IRIS, tmp_path / "t.silva", *SHORT, "--pareto", Path(file) / "x", code=1).stderr
    assert "the folder cannot be created" in below
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if not os.access(folder, os.W_OK):
        closed = run("train", IRIS, tmp_path / "t.silva", *SHORT, "--pareto", folder, code=1).stderr
        assert "the folder cannot be used" in closed
    for name in ("", "-"):
        assert "an archive is a folder" in run("train", IRIS, tmp_path / "t", *SHORT, "--pareto", name, code=1).stderr


@pytest.mark.parametrize(("output", "folder"), [("new/t.silva", "new"), ("t", "t"), ("t", "t/trees")])
def test_an_output_that_is_in_the_way_of_the_folder(output: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    result = run("train", IRIS, tmp_path / output, *SHORT, "--pareto", tmp_path / folder, code=2)
    assert "somewhere else" in result.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


# Listing and picking


def test_the_list_in_all_forms(trained: Path) -> None:
    folder = trained / "trees"
    index = read_index(folder)
    text = run("pareto", folder).stdout.splitlines()
    assert text[0] == f"{len(index['trees'])} trees on {IRIS} (120 training rows), l_inf 0.1"
    assert text[2].split() == ["tree", "accuracy", "stability", "robust", "accuracy", "phi", "leaves", "depth"]
    assert len(text) == 3 + len(index["trees"])
    document = json.loads(run("pareto", folder, "--format", "json").stdout)
    assert (document["data"], document["perturbation"]) == (IRIS, "l_inf 0.1")
    records = listed(folder)
    for tree, record, row in zip(index["trees"], document["trees"], records, strict=True):
        assert (record["tree"], record["accuracy"], record["leaves"]) == (
            tree["file"],
            tree["accuracy"],
            tree["leaves"],
        )
        assert float(row["stability"]) == tree["stability"]
    assert "| tree-000.silva |" in run("pareto", folder, "--format", "markdown").stdout


def test_a_pick_is_listed_and_copied(trained: Path, tmp_path: Path) -> None:
    folder = trained / "trees"
    trees = read_index(folder)["trees"]
    middle = sorted(tree["leaves"] for tree in trees)[len(trees) // 2 - 1]
    wanted = max((tree for tree in trees if tree["leaves"] <= middle), key=lambda tree: tree["accuracy"])
    out = tmp_path / "chosen.silva"
    assert [row["tree"] for row in listed(folder, "--pick", f"leaves<={middle}", "-o", out)] == [wanted["file"]]
    assert out.read_bytes() == (folder / wanted["file"]).read_bytes()
    both = listed(folder, "--pick", f"leaves<={middle}", "--pick", "stability>=100%")
    assert both[0]["stability"] == "1.0"
    assert listed(folder, "--by", "leaves")[0]["leaves"] == "1"
    assert listed(folder, "--by", "phi")[0]["phi"] == str(max(tree["phi"] for tree in trees))
    assert "1 of " in run("pareto", folder, "--by", "stability").stdout


def test_a_pick_in_a_pipe(trained: Path) -> None:
    result = run("pareto", trained / "trees", "--by", "accuracy", "-o", "-")
    assert result.stdout == (trained / "trees" / "tree-000.silva").read_text()
    assert "tree-000.silva" in result.stderr


def test_no_tree_satisfies(trained: Path, tmp_path: Path) -> None:
    wanted = ["--pick", "accuracy>=0.9", "--pick", "leaves<1"]
    result = run("pareto", trained / "trees", *wanted, "-o", tmp_path / "x.silva", code=3)
    assert result.stdout == ""
    assert result.stderr == f"no tree in {trained / 'trees'} satisfies accuracy>=0.9 and leaves<1\n"
    assert not (tmp_path / "x.silva").exists()


def test_figures_on_other_data(trained: Path) -> None:
    folder = trained / "trees"
    test = read_dataset(TEST)
    for row in listed(folder, "--data", TEST, "--epsilon", "0.2"):
        metrics = measure(read_model(str(folder / row["tree"])), test, Ball(0.2))
        found = float(row["accuracy"]), float(row["stability"]), int(row["leaves"])
        assert found == (float(metrics.accuracy), float(metrics.stability), metrics.leaves)
    text = run("pareto", folder, "--data", TEST, "--epsilon", "0.2", "--by", "phi").stdout
    assert f"trees on {TEST} (30 rows), l_inf 0.2\n" in text


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_plot_is_drawn_and_drawn_again(ending: str, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{ending}"
        run("pareto", trained / "trees", "--plot", path)
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    run("pareto", trained / "trees", "--plot", path, "--by", "phi")
    assert path.read_bytes() != pictures[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.silva"], "say which one with --pick or --by"),
        (["--epsilon", "0.1"], "give --data FILE"),
        (["--data", TEST], "trained for l_inf 0.1"),
        (["--pick", "size<3"], "'size<3' is not understood"),
        (["--pick", "leaves<=50%"], "'leaves<=50%' is not understood"),
        (["--pick", "stability>=90"], "a metric is at most 1"),
        (["--by", "size"], "is not one of"),
        (["--plot", "x.txt"], "a plot is a file that ends in"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, trained: Path) -> None:
    assert message in run("pareto", trained / "trees", *arguments, code=2).stderr


def test_a_tree_of_the_archive_is_not_overwritten(trained: Path) -> None:
    folder = trained / "trees"
    before = (folder / "tree-001.silva").read_bytes()
    result = run("pareto", folder, "--by", "accuracy", "-o", folder / "tree-001.silva", code=2)
    assert "is read by this command" in result.stderr
    assert (folder / "tree-001.silva").read_bytes() == before


# Damage


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"trees": 3},
        {"trees": [3]},
        {"trees": [{"file": "../../secret.silva"}]},
        {"trees": [{"file": "tree-000.silva"}]},
        {"trees": [tree_of(4, 4, 4, 5)]},
        {"trees": [tree_of(4, 4, 4, 3)]},
        {"trees": [tree_of(0, 0, 0, 0)]},
        {"trees": [tree_of(True, 0, 0, 0)]},
        {"data": None},
        {"options": {}},
        {"options": {"fitness": {"correct": 1}}},
    ],
    ids=str,
)
def test_a_damaged_index(change: dict[str, object], archive: Path) -> None:
    change_index(archive, **change)
    result = run("pareto", archive, code=1)
    assert result.stderr.startswith(f"error: {archive / 'index.json'}: ")
    assert result.stderr.count("\n") == 1


def test_folders_that_are_no_archives(archive: Path, tmp_path: Path) -> None:
    assert "no such folder" in run("pareto", tmp_path / "nowhere", code=1).stderr
    (archive / "index.json").write_text("{")
    assert "is not JSON" in run("pareto", archive, code=1).stderr
    (archive / "index.json").write_bytes(b"\xff\xfe{")
    assert "is not JSON" in run("pareto", archive, code=1).stderr
    (archive / "index.json").unlink()
    assert "holds no index.json" in run("pareto", archive, code=1).stderr


def test_trees_that_are_not_those_of_the_index(archive: Path, tmp_path: Path) -> None:
    shutil.copy(archive / "tree-001.silva", archive / "tree-000.silva")
    trees = read_index(archive)["trees"]
    if trees[0]["leaves"] == trees[1]["leaves"]:
        shutil.copy(archive / trees[-1]["file"], archive / "tree-000.silva")
    result = run("pareto", archive, "--by", "accuracy", "-o", tmp_path / "x.silva", code=1)
    assert "is not the tree that index.json describes" in result.stderr
    (archive / "tree-000.silva").unlink()
    assert "no such file" in run("pareto", archive, "--by", "accuracy", "-o", tmp_path / "x", code=1).stderr


def test_an_archived_leaf_predicts_one_label(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "a,1\nb,1\nb,1\na,1\n")
    run("train", rows, tmp_path / "m.silva", "--epsilon", "0.1", "--preset", "fast", "--pareto", tmp_path / "trees")
    (tree,) = json.loads(run("pareto", tmp_path / "trees", "--format", "json").stdout)["trees"]
    assert tree["accuracy"] == 0.5
