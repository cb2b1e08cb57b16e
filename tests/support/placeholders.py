"""The files that the documents name without making them, such as ``data.csv``: small ones, from the data that ship."""

from __future__ import annotations

import glob
import importlib.util
import shlex
import shutil
from pathlib import Path

import numpy as np
from click.testing import Result

from metasilvae.formats.datasets import read_dataset
from support.boosted_models import DUMP
from support.command import run

MAKING = """
metasilvae attack template train.csv -o attack.toml
metasilvae data convert train.csv scaled.csv --scale minmax --save-scale scale.json
metasilvae train train.csv model.silva --epsilon 0.1 --preset fast --pareto trees
metasilvae train train.csv b.silva --epsilon 0.1 --preset cart
metasilvae train train.csv forest.silva --epsilon 0.1 --preset fast --trees 4 --forest-method reweighted
metasilvae train builtin:circle/train cart.silva --epsilon 0.02 --preset cart
metasilvae train builtin:circle/train ours.silva --epsilon 0.02 --preset fast
metasilvae train builtin:wine/train wine.silva --epsilon 0.1 --preset fast
metasilvae disassemble forest.silva .
metasilvae train train.csv any.silva --epsilon 0.1 --no-tune --max-iteration 3 --log training.jsonl
metasilvae train train.csv any.silva --epsilon 0.1 --preset fast --seeds 1..6 --table seeds.csv
metasilvae train train.csv any.silva --epsilon 0.1 --preset fast --weight accuracy=1 --table weight-1.csv
metasilvae verify model.silva test.csv --epsilon 0.1 --shard 1/2 -o part-1.jsonl
metasilvae verify model.silva test.csv --epsilon 0.1 --shard 2/2 -o part-2.jsonl
metasilvae verify model.silva test.csv --radius --shard 1/2 -o radii-1.jsonl
metasilvae verify model.silva test.csv --radius --shard 2/2 -o radii-2.jsonl
"""
# Names that stand for the same file.
COPIES = {
    "train.csv": ["data.csv"],
    "model.silva": ["a.silva", "old.silva", "new.silva"],
    "training.jsonl": ["default.jsonl", "paper.jsonl"],
    "seeds.csv": ["wine.csv", "iris.csv", "weight-0.csv"],
}
# Files that a library must have written.
LIBRARIES = {"model.json": "xgboost", "forest.joblib": "joblib"}


def run_line(line: str) -> Result:
    """Run a command of metasilvae that needs no shell but for its quotes and its asterisks, in this process."""
    words = [found for word in shlex.split(line) for found in sorted(glob.glob(word)) or [word]]
    assert words[0] == "metasilvae", line
    return run(*words[1:])


def is_missing(name: str) -> bool:
    """Whether a file cannot be made, because the library that writes it is not installed."""
    return name in LIBRARIES and importlib.util.find_spec(LIBRARIES[name]) is None


def make_placeholders(folder: Path) -> None:
    """Write all of them into a folder, which is the current one."""
    for name, source in {"train.csv": "builtin:iris/test", "test.csv": "builtin:iris/train"}.items():
        write_people(folder / name, source)
    labelled = (folder / "test.csv").read_text().splitlines()
    (folder / "values.csv").write_text("".join(line.partition(",")[2] + "\n" for line in labelled))
    for line in MAKING.strip().splitlines():
        run_line(line)
    for name, copies in COPIES.items():
        for copy in copies:
            shutil.copyfile(folder / name, folder / copy)
    (folder / "dump.txt").write_text(DUMP)
    if not is_missing("model.json"):
        write_boosted(folder / "model.json")
    if not is_missing("forest.joblib"):
        write_pickle(folder / "forest.joblib")


def write_people(path: Path, source: str) -> None:
    """Flowers of which, for questions of fairness, sex and age are known."""
    rows = read_dataset(source)
    lines = [["label", *(rows.feature_names or ()), "sex", "age"]]
    for number, (label, values) in enumerate(zip(rows.y, rows.X.tolist(), strict=True)):
        lines.append([rows.labels[label], *map(str, values), str(number % 2), str(20 + number % 7)])
    path.write_text("".join(",".join(line) + "\n" for line in lines))


def write_boosted(path: Path) -> None:
    import xgboost

    rows = read_dataset("train.csv")
    settings = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "nthread": 1, "verbosity": 0}
    xgboost.train(settings, xgboost.DMatrix(rows.X, label=rows.y, nthread=1), 2).save_model(path)


def write_pickle(path: Path) -> None:
    import joblib
    from sklearn.ensemble import RandomForestClassifier

    rows = read_dataset("train.csv")
    joblib.dump(RandomForestClassifier(3, random_state=1).fit(rows.X, np.minimum(rows.y, 1)), path)
