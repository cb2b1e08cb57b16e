"""The experiments of the paper: nothing finished is lost or done twice, and the document says what the results say."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "paper.py"
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def paper() -> Any:
    """The modules of the script."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import paper as script
        from experiments import document, figures, reader, runs, store, tasks
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return SimpleNamespace(
        document=document, figures=figures, reader=reader, runs=runs, store=store, tasks=tasks, main=script.main
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with one set, under the name of one of the paper's."""
    rng = np.random.default_rng(1)
    for split, n_rows in (("train", 30), ("test", 20)):
        folder = tmp_path / "data" / "breast-cancer"
        folder.mkdir(parents=True, exist_ok=True)
        rows = rng.integers(0, 20, (n_rows, 2))
        text = "".join(f"{'ab'[int(a + b > 20)]},{a},{b}\n" for a, b in rows)
        (folder / f"{split}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path / "data"


def start(data: Path, *options: str) -> subprocess.Popen[str]:
    output = data.parent / "results"
    command = [sys.executable, str(SCRIPT), "--quick", "--offline", "--data", data, "--output", output, *options]
    environment = {**os.environ, "METASILVAE_CACHE": str(data.parent / "cache")}
    return subprocess.Popen(
        [str(word) for word in command], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Results, and what would change if one were written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("*.json")}


def count_done(told: str) -> int:
    return len(re.findall(r"^\d+ of \d+: ", told, re.MULTILINE))


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_ended(data: Path) -> None:
    results = data.parent / "results"
    process = start(data, "--only", "training,weights", "--sets", "breast-cancer")
    deadline = time.monotonic() + 120
    while len(stamps(results)) < 3:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate()
    kept = stamps(results)
    assert not list(results.glob("*.md"))
    (results / "broken.json").write_text("{")

    process = start(data)
    printed, told = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, ""), told
    assert f"{results / 'broken.json'}: left out" in told
    for name in ("wine", "ionosphere", "diabetes"):
        assert len(re.findall(rf"^{name}: skipped: .*not in the cache", told, re.MULTILINE)) == 1
    (results / "broken.json").unlink()
    after = stamps(results)
    assert kept.items() <= after.items()
    assert count_done(told) == len(after) - len(kept) > 10
    check_document(results)


def check_document(results: Path) -> None:
    """The figures of the document are those of the files."""
    document = (results / "paper.md").read_text()
    found = [json.loads(path.read_text()) for path in results.glob("*.json")]
    trees = [each["result"] for each in found if each["kind"] == "tree" and each["settings"]["w_acc"] == 0.9]
    assert len(trees) == 5
    accuracy, stability = (np.median([tree["test"][name] for tree in trees]) / 20 for name in ("correct", "stable"))
    phis = [(0.9 * tree["test"]["correct"] + 0.1 * tree["test"]["stable"]) / 20 for tree in trees]
    leaves = np.median([tree["leaves"] for tree in trees])
    line = (
        f"| breast-cancer | 5 | {100 * accuracy:.1f} / {100 * stability:.1f} | {np.median(phis):.3f} | {leaves:.0f} |"
    )
    assert line in document
    assert "| 100.0 / 89.1 | 0.989 | 4 |" in document
    (forest,) = (each for each in found if each["kind"] == "chosen-forest")
    settings = forest["settings"]
    assert f"{settings['trees']} trees, depth {settings['depth']}, {settings['criterion']}" in document
    assert "Skipped, because the data were missing: wine, ionosphere, diabetes." in document
    assert "Not run so far" not in document
    for name in ("convergence", "weights", "variance"):
        assert f"(paper/{name}.svg)" in document
        assert (results / "paper" / f"{name}.svg").read_bytes().startswith(b"<?xml")


def test_sections_without_results_say_how_to_make_them(paper: Any) -> None:
    tasks = paper.tasks
    request = tasks.Request(tasks.MODES["quick"], 7, ("wine", "diabetes"))
    text = paper.document.render(paper.store.Bundle(request, {}, {}, ("diabetes",)), "paper")
    for experiment in tasks.EXPERIMENTS:
        if experiment != "convergence":  # of no set that is at hand
            assert f"    python scripts/paper.py --quick --seed 7 --only {experiment} --sets wine\n" in text
    assert "Skipped, because the data were missing: diabetes." in text
    assert ".svg" not in text
    assert paper.figures.draw_figures(paper.store.Bundle(request, {}, {})) == {}


def test_the_picture_of_the_seeds_leaves_out_sets_with_few(paper: Any) -> None:
    tasks = paper.tasks
    request = tasks.Request(tasks.MODES["full"], 1, ("wine", "cod-rna"))
    counts = {"size": 10, "correct": 8, "stable": 5, "robust": 5, "no_info": 0, "processor": 0.1}
    result = {"seconds": 1.0, "processor": 1.0, "leaves": 3, "depth": 2, "train": counts, "test": counts}
    results = dict.fromkeys(tasks.plan_tasks(["variance"], request, {}), result)
    assert len(results) == 23
    origins = dict.fromkeys(results, paper.runs.describe_origin(1))
    bundle = paper.store.Bundle(request, results, origins)
    picture = paper.figures.draw_figures(bundle)["variance.svg"]
    assert b">wine<" in picture
    assert b"cod-rna" not in picture
    assert "| cod-rna | 3 | 0.770 |" in paper.document.render(bundle, "paper")


def test_sets_that_nobody_has(paper: Any, data: Path) -> None:
    told: list[str] = []
    assert list(paper.store.find_all_data(["sensorless-10k", "breast-cancer"], data, True, told.append)) == [
        "breast-cancer"
    ]
    assert len(told) == 1
    assert told[0].startswith(f"sensorless-10k: skipped: not in {data}, and there is no set of this name to fetch")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "nonsense"], "--only: nonsense is not among data, training"),
        (["--sets", "iris"], "--sets: iris is not among breast-cancer"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--data", "nowhere"], "--data nowhere: no such folder"),
    ],
)
def test_wrong_usage(
    options: list[str], message: str, paper: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        paper.main(["--output", str(tmp_path / "results"), *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    paper: Any, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data.parent / "results").write_text("")
    words = ["--quick", "--offline", "--data", data, "--output", data.parent / "results"]
    assert paper.main([str(word) for word in words]) == 1
    told = capsys.readouterr().err
    assert told.startswith("Error: ")
    assert told.count("\n") == 1


def test_results_of_other_data_do_not_count(paper: Any, tmp_path: Path) -> None:
    told: list[str] = []
    task = paper.tasks.Task.of("data", "wine")
    store = paper.store.Store(tmp_path, {"wine": "one"}, told.append)
    store.keep(task, {"train": 1}, paper.runs.describe_origin(1))
    assert paper.store.Store(tmp_path, {"wine": "one"}, told.append).results == {task: {"train": 1}}
    assert paper.store.Store(tmp_path, {"wine": "other"}, told.append).results == {}
    assert not told


def test_a_forest_is_chosen_by_held_out_rows_and_the_smallest_among_equals(paper: Any) -> None:
    tasks = paper.tasks
    request = tasks.Request(tasks.MODES["quick"], 1, ("wine",))
    results = {
        task: {
            "tried": [
                {"trees": trees, "size": 10, "correct": 8, "stable": 5 + (task["depth"] == 25 and trees >= 10)}
                for trees in tasks.GRID
            ]
        }
        for task in tasks.list_grid(request, "wine")
    }
    chosen = tasks.choose_forest(request, "wine", results)
    assert (chosen["trees"], chosen["depth"], chosen["criterion"]) == (10, 25, "gini")
    assert chosen in tasks.plan_tasks(["forests"], request, results)
    results.popitem()
    assert tasks.choose_forest(request, "wine", results) is None


def test_the_first_trees_of_a_large_forest_are_those_of_a_small_one(paper: Any, data: Path) -> None:
    rows = paper.runs.read_dataset(str(data / "breast-cancer" / "train.csv.gz"))
    task = paper.tasks.Task.of("random-forest", "breast-cancer", criterion="gini", depth=5, seed=1)
    small, large = (paper.runs._fit_forest(rows, task, n_trees).estimators_ for n_trees in (5, 20))
    for one, other in zip(small, large[:5], strict=True):
        assert np.array_equal(one.tree_.threshold, other.tree_.threshold)
        assert np.array_equal(one.tree_.value, other.tree_.value)


def test_the_committed_document_is_that_of_the_committed_results(paper: Any) -> None:
    text = (ROOT / "docs" / "paper" / "results.json").read_text()
    bundle = paper.store.unpack(text)
    assert paper.document.render(bundle, "paper") == (ROOT / "docs" / "paper.md").read_text()
    tasks = paper.tasks.plan_tasks(list(paper.tasks.EXPERIMENTS), bundle.request, bundle.results)
    assert paper.store.pack(bundle, tasks) == text
    for path in (ROOT / "docs" / "paper").glob("*.svg"):
        assert path.stat().st_size < 60_000, path
