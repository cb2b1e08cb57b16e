"""The scripts take what their heads say, and run, on small data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.boosted_models import xgboost_document
from support.command import run
from support.documented import ROOT
from support.script_parsers import SCRIPTS, options_of_script

# A short run of each, in a folder with small data in the place of the paper's, and an empty folder.
SHORT_RUNS = {
    "scripts/bench_ablation.py": "--data data --sets breast-cancer --repeat 1",
    "scripts/bench_boosting.py": "--data data --sets breast-cancer --rounds 3 --models boosted",
    "scripts/bench_cluster.py": "--workers 1 --tasks 5 --trees 1 --epsilon 0.1 builtin:iris/train",
    "scripts/bench_customers.py": "--rows 300 --preset fast",
    "scripts/bench_forest.py": "--data data --golden empty --cases mnist-1-5 --limit 1",
    "scripts/bench_forest_training.py": "--data data --sets breast-cancer --trees 2 --models forests",
    "scripts/bench_generalization.py": "--records records.jsonl --sets grid --splits 1 --preset fast",
    "scripts/bench_hard_forests.py": "--rows 2 --forests 1 --radius-rows 1 --radius-seconds 0.1 --seconds 0.1",
    "scripts/bench_load.py": "--rows 200 --repeat 1",
    "scripts/bench_norm_trees.py": "--data data --sets iris --folds 2 --preset fast --norms l1 --factors 1",
    "scripts/bench_norms.py": "--data data --sets breast-cancer --rounds 2 --rows 10 --boxes",
    "scripts/bench_phases.py": "--data data --sets breast-cancer --preset fast",
    "scripts/bench_peers.py": (
        "--data data --sets breast-cancer --peers CART --here --repeats 2 --preset fast --rounds 3"
    ),
    "scripts/bench_published.py": "--folder published --sets breast-cancer --kinds natural --rows 2",
    "scripts/bench_radius.py": "builtin:iris/tree.silva builtin:iris/test --epsilon 0.1 --repeat 1",
    "scripts/bench_scaling.py": "--studies training --sizes 500 --presets fast --noise 0.1",
    "scripts/bench_sensitivity.py": "--folder published --sets breast-cancer --kinds natural --margins 0",
    "scripts/bench_stable_share.py": "--trees 3 --columns 2 --seconds 0.2",
    "scripts/bench_tables.py": "--rows 300 --numbers 2 --categories 2 --preset fast",
    "scripts/bench_train.py": "--data data --sets breast-cancer --preset fast --jobs 1",
    "scripts/bench_verify.py": "--data data --models models --repeat 1",
    "scripts/check_veritas.py": "--trees 2 --depth 2 --pair-trees 2 --pair-depth 2 --rows 2 --limit 1",
    "scripts/draw_curves.py": "--data data --sets mnist-1-5 --trees 2 --rows 50 --models curves --output curves.svg",
    "scripts/draw_proofs.py": "--output empty",
    "scripts/fuzz/run.py": "model --runs 50",
    "scripts/make_command_reference.py": "--output commands.md",
    "scripts/make_datasets.py": "--folder sets",
    "scripts/make_demo_model.py": "--output tree.silva",
    "scripts/soak.py": "--minutes 0.001 --seed 1",
}
# They start processes, or measure again what they have measured.
LONG = (*(name for name in SHORT_RUNS if "/bench_" in name), "scripts/make_datasets.py", "scripts/soak.py")
PUBLISHED = ("models/breast_cancer_unrobust/0004.resaved.json", "data/breast_cancer_scale0.test")
NOT_RUN = {
    "scripts/update_sessions.py": "writes into the documents; test_sessions.py runs the same sessions",
    "scripts/check_golden.py": "needs recorded verdicts; test_reference.py runs it where they are",
    "scripts/paper.py": "test_paper.py runs it",
}
LIBRARIES = {
    "scripts/bench_cluster.py": "distributed",
    "scripts/bench_forest.py": "sklearn",
    "scripts/bench_peers.py": "sklearn",
    "scripts/draw_curves.py": "sklearn",
    "scripts/bench_hard_forests.py": "sklearn",
    "scripts/bench_stable_share.py": "sklearn",
    "scripts/check_veritas.py": "veritas",
    "scripts/make_datasets.py": "palmerpenguins",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    for name in ("empty", "models"):
        (folder / name).mkdir()
    for name in ("breast-cancer", "mnist-1-5"):
        (folder / "data" / name).mkdir(parents=True)
        for split in ("train", "test"):
            run("data", "convert", f"builtin:circle/{split}", folder / "data" / name / f"{split}.csv.gz")
    model, rows = (folder / "published" / name for name in PUBLISHED)
    for path, content in ((model, xgboost_document()), (rows, "0 0:0.25\n1 0:0.875\n")):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    run("train", "builtin:circle/train", folder / "models" / "mnist-1-5-tree.silva", "--epsilon", 1, "--preset", "cart")
    return folder


def read_usage(script: str) -> str:
    """The lines in the head of a script that say how to call it."""
    head = (ROOT / script).read_text(encoding="utf-8").split('"""')[1]
    lines = re.findall(r"^ {4}.*$", head, re.MULTILINE)
    return "\n".join(line for line in lines if "scripts/" in line or line.strip().startswith("["))


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_takes_the_options_of_its_head(script: str) -> None:
    usage = read_usage(script)
    assert f"python {script}" in usage
    assert set(re.findall(r"--[a-z][a-z0-9-]*", usage)) <= options_of_script(script)


def test_every_script_is_run_or_left_out_for_a_reason() -> None:
    assert sorted([*SHORT_RUNS, *NOT_RUN]) == SCRIPTS
    for script, words in SHORT_RUNS.items():
        assert set(re.findall(r"--[a-z][a-z0-9-]*", words)) <= set(
            re.findall(r"--[a-z][a-z0-9-]*", read_usage(script))
        ), script


@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SHORT_RUNS]
)
def test_a_script_runs(script: str, folder: Path) -> None:
    if script in LIBRARIES:
        pytest.importorskip(LIBRARIES[script])
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    line = [sys.executable, ROOT / script, *SHORT_RUNS[script].split()]
    found = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
def test_peers_are_compared_on_the_same_rows(folder: Path) -> None:
    """A program that is metasilvae itself is neither ahead nor behind; a library that is missing is left out."""
    pytest.importorskip("sklearn")
    options = "--preset fast --epsilon {epsilon} --seed {seed}"
    again = f"{sys.executable} -m metasilvae train {{train}} {{model}} {options}"
    words = "--data data --sets breast-cancer --here --repeats 2 --preset fast --ours tree --peers CART,GROOT"
    line = [sys.executable, ROOT / "scripts/bench_peers.py", *words.split(), "--program", f"again={again}"]
    line += ["--program", "broken=false {train} {model}"]
    found = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    lines = [each.strip("| ").split(" | ") for each in found.stdout.splitlines() if each.startswith("|")]
    rows = {cells[1]: cells for cells in lines if len(cells) > 1}
    assert rows["again"][2:4] == rows["metasilvae"][2:4]
    assert rows["again"][6] == "+0.0000 ± 0.0000"
    phi = {name: float(rows[name][2].split(" ± ")[0]) for name in ("metasilvae", "CART")}
    assert float(rows["CART"][6].split(" ± ")[0]) == pytest.approx(phi["metasilvae"] - phi["CART"], abs=2e-4)
    assert rows["GROOT"][2].startswith("left out: ") or rows["GROOT"][2].count(" ± ") == 1
    assert rows["broken"][2].startswith("left out: exit code 1")


# Programs of others in short: a stump for the first feature. They compare as the real ones do, < here and <= there.
AH19 = """
import numpy as np
class Tree:
    left = right = None
    def __init__(self, w_l, w_r, b): self.w_l, self.w_r, self.b, self.coord = w_l, w_r, b, 0
    def to_array_contiguous(self): return np.zeros((1, 8))
    def predict(self, X): return np.where(X[:, 0] < self.b, self.w_l, self.w_l + self.w_r)
class TreeEnsemble:
    def __init__(self, *words, **names): self.trees = []
    def predict(self, X): return sum(tree.predict(X) for tree in self.trees)
StumpEnsemble = TreeEnsemble
def train_iter_binary_clsf(ensemble, X, y, gamma, margin, *words):
    print("noise")
    assert X.dtype == np.float32 and X.min() == 0 and X.max() == 1
    assert (Tree(0, 0, 0).to_array_contiguous() != []) is True
    ensemble.trees.append(Tree(-0.25, 0.5, np.sort(X[:, 0])[len(X) // 2]))
    return ensemble, gamma, margin, 1, 1
"""
FPRDT = """
import numpy as np
from util import convert_numpy
class Node:
    def __init__(self, *parts): self.feature, self.threshold, self.left_child, self.right_child, self.value = parts
    def is_leaf(self): return self.left_child == -1
class FPRDecisionTree:
    def __init__(self, *words): pass
    def fit(self, X, y):
        self.root_ = Node(0, np.median(X[:, 0]), *(Node(None, None, -1, -1, v) for v in ((1, 0), (0, 1))), None)
    def predict(self, X): return (X[:, 0] > self.root_.threshold) * 1.0
class PRAdaBoost:
    def __init__(self, rounds, *words, random_seed): self.rounds = rounds
    def fit(self, X, y):
        self.estimators_, self.alpha = [FPRDecisionTree() for _ in range(self.rounds)], [0.5] * self.rounds
        for tree in self.estimators_: tree.fit(X, y)
    def predict(self, X): return self.estimators_[0].predict(X).astype(int)
"""


@pytest.mark.slow
def test_programs_of_a_folder_are_run_and_their_models_predict_alike(folder: Path) -> None:
    """The script ends if a converted model predicts otherwise than the program; a second run trains nothing again."""
    for name, modules, content in (
        ("ah19", ("train", "tree_ensemble", "stump_ensemble"), AH19), ("fprdt", ("fprdt", "pradaboost"), FPRDT),
    ):  # fmt: skip
        (folder / name).mkdir()
        for module in modules[1:]:
            (folder / name / f"{module}.py").write_text(f"from {modules[0]} import *\n")
        (folder / name / f"{modules[0]}.py").write_text(content)
    words = "--data data --sets breast-cancer --here --repeats 2 --preset fast --ours tree --records kept.jsonl"
    peers = ("AH19", "AH19 stumps", "AH19 plain", "FPRDT", "PRAdaBoost")
    line = [sys.executable, ROOT / "scripts/bench_peers.py", *words.split(), "--peers", ",".join(peers)]
    line += ["--ah19", "ah19", "--fprdt", "fprdt"]
    found = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    rows = {cells[1]: cells for each in found.stdout.splitlines() if len(cells := each.strip("| ").split(" | ")) == 7}
    # All those of a program are the same stump, once or five times.
    for same in (peers[:3], peers[3:]):
        assert len({tuple(rows[peer][2:4]) for peer in same}) == 1
    assert {rows[peer][4] for peer in peers} == {"2", "10"}
    for module in (folder / "ah19" / "train.py", folder / "fprdt" / "fprdt.py"):
        module.write_text("raise RuntimeError")
    again = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    kept = [each for each in again.stdout.splitlines() if "| metasilvae |" not in each]
    assert kept[:-1] == [each for each in found.stdout.splitlines() if "| metasilvae |" not in each][:-1]


def run_published(folder: Path, *words: object) -> str:
    line = [sys.executable, ROOT / "scripts/bench_published.py", "--sets", "breast-cancer", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "METASILVAE_CACHE": str(folder / "cache")}
    return subprocess.run(line, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_published_models_have_their_distortion(folder: Path) -> None:
    """One split at 0.5: the rows are 0.25 and 0.375 away from it."""
    row = run_published(folder, "--folder", "published", "--kinds", "natural", "--veritas-rows", 0).splitlines()[-1]
    assert [cell.strip() for cell in row.split("|")[1:7]] == ["breast-cancer, natural", "1", "2", "2", "0.3125", "2"]


@pytest.mark.slow
def test_a_published_file_is_fetched_and_checked(folder: Path) -> None:
    found = run_published(folder, "--mirror", (folder / "published").as_uri())
    assert "natural | left out" in found
    assert "checksum" in found
    assert not (folder / "cache" / "published" / PUBLISHED[0]).exists()
